"""Compares the files of a step's inputs with their manifests, and describes its outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as tfx_utils
from tfx.types import Artifact

from stagecraft.components.metadata import manifest
from stagecraft.components.report import artifacts as report_artifacts

Artifacts = dict[str, list[Artifact]]


@contextlib.contextmanager
def compared() -> Iterator[None]:
    """In this block, TFX's entrypoint compares inputs before and after the executor.

    Raises:
        DamagedArtifactError: an input is damaged, or became so while the executor read it.
    """
    read, write = tfx_utils.parse_raw_artifact_dict, tfx_utils.translate_executor_output
    parsed: list[Artifacts] = []  # inputs, then outputs

    def parse(*args: Any, **kwargs: Any) -> Artifacts:
        found: Artifacts = read(*args, **kwargs)
        if not parsed:
            manifest.check(found, _remedy)
        parsed.append(found)
        return found

    def translate(outputs: Artifacts, *args: Any, **kwargs: Any) -> Any:
        manifest.check(parsed[0], _remedy)
        for artifacts in outputs.values():
            for artifact in artifacts:
                # The backend records such an artifact as a file, without its folder.
                if not artifact.has_custom_property(report_artifacts.FILE):
                    manifest.add(artifact.mlmd_artifact, artifact.type_name)
        return write(outputs, *args, **kwargs)

    tfx_utils.parse_raw_artifact_dict = parse
    tfx_utils.translate_executor_output = translate
    try:
        yield
    except Exception:
        manifest.check(
            parsed[0] if parsed else {}, _remedy, thorough=True
        )  # the cause, if it fails
        raise
    finally:
        tfx_utils.parse_raw_artifact_dict = read
        tfx_utils.translate_executor_output = write


def _remedy(artifact: Artifact) -> tuple[str, str]:
    del artifact
    return (
        "Restore its files; or run the pipeline under another name, which reuses no cached result."
    ), "--set name=…"
