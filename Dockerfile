# The image that a pipeline's steps run in, and the workers of Beam's runners.
#
#   docker build -t stagecraft:0.1.0 .                    CPU
#   docker build -t stagecraft:0.1.0-gpu --build-arg VARIANT=gpu .
#                                                         CUDA libraries of TensorFlow's choice; the
#                                                         driver is the host's (nvidia runtime)
#
# It holds the next stack. A pipeline compiled on the classic one wants the same in its steps:
# --build-arg BASE=python:3.10.19-slim-trixie --build-arg BEAM=apache/beam_python3.10_sdk:2.59.0

# Beam's boot program, of the version in requirements.lock: it starts a worker.
ARG BEAM=apache/beam_python3.12_sdk:2.77.0
ARG BASE=python:3.12.13-slim-trixie@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36

FROM ${BEAM} AS beam

FROM ${BASE} AS dependencies

# pyfarmhash, which TFX depends on, comes as C++ source only. The compiler stays in this stage;
# Debian's mirrors drop old versions, so that a pinned one would not be found for long.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

# The locks constrain: they give versions and hashes, and what only development needs stays out.
ENV VIRTUAL_ENV=/opt/stagecraft \
    UV_CONSTRAINT="requirements.lock requirements-gpu.lock" \
    UV_BUILD_CONSTRAINT=requirements.lock \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1
ENV PATH=$VIRTUAL_ENV/bin:$PATH
WORKDIR /src

COPY pyproject.toml requirements.lock requirements-gpu.lock ./
RUN python -m venv "$VIRTUAL_ENV" \
    && sed -n '/^uv==/,/[^\\]$/p' requirements.lock > /tmp/uv.lock \
    && pip install --no-cache-dir --no-deps --require-hashes -r /tmp/uv.lock \
    && uv pip install -r pyproject.toml --extra kubeflow
ARG VARIANT=cpu
RUN case "$VARIANT" in \
        cpu) ;; \
        gpu) uv pip install -r pyproject.toml --extra gpu ;; \
        *) echo "VARIANT=$VARIANT: cpu or gpu" >&2; exit 1 ;; \
    esac

# A step of the pipeline draws charts: without this file, matplotlib lists all fonts first.
RUN MPLCONFIGDIR=/opt/stagecraft/matplotlib python -c "import matplotlib.font_manager" \
    && chmod -R g+rwX /opt/stagecraft/matplotlib

FROM dependencies AS wheel

COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

FROM ${BASE}

# Kubeflow's launcher runs inside the step, as its user, and copies artifacts to these folders.
RUN useradd --uid 1000 --gid 0 --create-home stagecraft \
    && install --directory --owner 1000 --group 0 --mode 0775 /gcs /minio /s3 /home/stagecraft

# The code changes more often than its dependencies: a push then takes the last layers alone.
COPY --from=dependencies /opt/stagecraft /opt/stagecraft
COPY --from=beam /opt/apache/beam/boot /opt/apache/beam/boot
COPY tools/image-entrypoint /opt/stagecraft/bin/image-entrypoint
# A Beam worker runs in the image's environment; by default, boot creates another one.
ENV PATH=/opt/stagecraft/bin:$PATH PYTHONUNBUFFERED=1 HOME=/home/stagecraft \
    MPLCONFIGDIR=/opt/stagecraft/matplotlib RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
COPY --from=wheel /wheel /wheel
RUN pip install --no-cache-dir --no-deps --no-index /wheel/*.whl
USER 1000:0
WORKDIR /home/stagecraft

# A step of a compiled pipeline has a command of its own.
ENTRYPOINT ["image-entrypoint"]
