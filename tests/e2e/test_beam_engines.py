"""Data steps on Flink write what they write on Beam's runner in Python."""

import json

import pytest
from beam_engines import data_steps, java, workers
from beam_engines.outputs import Outputs, same_statistics
from made_once import made_once
from support import TINY, run

pytestmark = pytest.mark.slow

METRIC = 2**-23
"""Of a float32, as the losses are: its last digit depends on the size of the batch."""

PROBABILITY = 1e-6
"""A float32 that is computed in batches of other sizes."""

# The order of transformed examples depends on the engine. A step this small changes no float32, so
# that the trained weights do not depend on the order.
SETTINGS = (
    *TINY,
    *("train.steps=1", "train.learning_rate=1e-30", "train.checkpoint_every=0"),
    *("transform.materialize=true", "report.enabled=false"),
)


def same(first, second, *outputs):
    """Compares outputs by the name of the method that reads them."""
    for name in outputs:
        found, expected = getattr(first, name)(), getattr(second, name)()
        if name == "statistics":
            assert same_statistics(found, expected)
        elif name in ("examples", "transformed"):
            assert found == expected
        else:
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                if name == "metrics":
                    assert found[key] == pytest.approx(value, rel=METRIC)
                else:
                    assert found[key] == pytest.approx(value, abs=PROBABILITY)


def run_data_steps(model, root, metadata_db, beam=None, **more):
    """Runs the user's pipeline in this process."""
    from stagecraft.pipeline.beam import beam_args
    from stagecraft.pipeline.local.runners import LocalRunner
    from stagecraft.pipeline.settings import load

    settings = load(overrides=list(SETTINGS))
    arguments = beam_args(settings.beam) if beam is None else beam
    places = (str(model), root, metadata_db)
    LocalRunner().run(data_steps.create_pipeline(settings, *places, arguments, **more))


def _add_signature(model, target):
    """Writes the model with one more signature: a BulkInferrer takes no names of classes."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(model / "Format-Serving"))
    serve = loaded.signatures["serving_default"]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def predict(examples):
        return {"probabilities": serve(examples=examples)["probabilities"]}

    signatures = {**loaded.signatures, data_steps.SIGNATURE: predict}
    tf.saved_model.save(loaded, str(target / "Format-Serving"), signatures)


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """Folder of a run, ``run``, and of the user's data steps with its model, on Beam's runner."""
    java.jars()

    def make(folder):
        run(folder / "run", settings=SETTINGS)
        [model] = (folder / "run" / "pipeline_root" / "Trainer" / "model").iterdir()
        _add_signature(model, folder / "model")
        run_data_steps(folder / "model", str(folder / "data_steps"), folder / "data_steps.db")

    return made_once(tmp_path_factory, "direct_runner", make)


def config(path, flink):
    """Settings of a run on Flink."""
    arguments = json.dumps(flink.arguments())
    path.write_text(f"name: quickstart\nbeam: {{runner: flink, args: {arguments}}}\n")
    return path


def test_a_run_on_flink(direct, embedded_flink, tmp_path):
    settings = config(tmp_path / "flink.yaml", embedded_flink)
    done = run(tmp_path / "run", "--config", settings, settings=SETTINGS)
    assert set(done.states.values()) == {"done"}
    found, expected = (
        Outputs(str(folder / "run" / "pipeline_root")) for folder in (tmp_path, direct)
    )
    same(found, expected, "examples", "transformed", "statistics", "metrics")


def test_a_bulk_inferrer_on_flink(direct, embedded_flink, tmp_path):
    from stagecraft.pipeline.beam import beam_args
    from stagecraft.pipeline.settings import load

    beam = beam_args(load(str(config(tmp_path / "flink.yaml", embedded_flink))).beam)
    root = str(tmp_path / "root")
    run_data_steps(direct / "model", root, tmp_path / "metadata.db", beam, inference_only=True)
    same(Outputs(root), Outputs(str(direct / "data_steps")), "examples", "predictions")


@pytest.mark.full
def test_workers_that_share_an_object_store_alone(
    direct, embedded_flink, bucket, s3_server, tmp_path
):
    """Their home is empty, their working directory another, their credentials in variables."""
    from tfx.utils import io_utils

    from stagecraft.components.object_store import beam_worker
    from stagecraft.pipeline.beam import beam_args
    from stagecraft.pipeline.settings import BeamSettings

    assert beam_worker  # importing it opens the store to this process, as to the workers
    root = f"minio://{bucket}/root"
    io_utils.copy_dir(str(direct / "model"), f"minio://{bucket}/model")
    variables = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL_S3": s3_server,
    }
    (tmp_path / "pool").mkdir()
    with workers.pool(tmp_path / "pool", variables) as pool:
        arguments = embedded_flink.arguments("EXTERNAL", pool.endpoint)
        settings = BeamSettings(runner="flink", args=arguments)
        beam = beam_args(settings)
        run_data_steps(f"minio://{bucket}/model", root, tmp_path / "metadata.db", beam)
    expected = Outputs(str(direct / "data_steps"))
    found = Outputs(root, copies=tmp_path / "copies")
    same(found, expected, "examples", "transformed", "statistics", "metrics", "predictions")
