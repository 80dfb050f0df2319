"""The executor with real artifacts: figures on the model, checkpoints by identity."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tfx import types
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_artifacts

from stagecraft.components.metadata.outputs import OutputExistsError
from stagecraft.components.trainer.component import RUN_FN
from stagecraft.components.trainer.executor import Executor
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import record
from stagecraft.trainer_module.settings import TrainingSettings

MODELS = pathlib.Path(__file__).resolve().parents[2] / "trainer_module"

SETTINGS = {
    "train": {
        "model": "user_models:tiny",
        "batch_size": 8,
        "eval_batch_size": 5,
        "steps": 2,
        "learning_rate": 0.01,
    }
}


def _artifact(kind: type[types.Artifact], uri: pathlib.Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(uri)
    return artifact


class Run:
    """One execution."""

    def __init__(self, data: Any, folder: pathlib.Path, **properties: Any):
        self.examples = _artifact(standard_artifacts.Examples, data.examples)
        self.examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
        self.inputs = {
            "examples": [self.examples],
            "transform_graph": [_artifact(standard_artifacts.TransformGraph, data.transform_graph)],
            "schema": [_artifact(standard_artifacts.Schema, data.schema)],
        }
        self.model = _artifact(standard_artifacts.Model, folder / "model")
        self.model_run = _artifact(standard_artifacts.ModelRun, folder / "model_run")
        self.properties = {
            **TrainingSettings.model_validate(SETTINGS).flat(),
            "run_fn": RUN_FN,
            "checkpoint_root": str(folder / "checkpoints"),
            "code_fingerprint": "0123456789abcdef",
            **properties,
        }
        self.checkpoints = folder / "checkpoints"

    def do(self, executor: Executor | None = None) -> None:
        outputs = {"model": [self.model], "model_run": [self.model_run]}
        (executor or Executor()).Do(self.inputs, outputs, self.properties)

    def working_dir(self) -> str:
        """The checkpoint folder that `run_fn` would be given."""
        given = []
        self.properties["run_fn"] = "unused"
        outputs = {"model": [self.model], "model_run": [self.model_run]}

        class Asking(Executor):
            def _GetFnArgs(self, *args: Any) -> Any:
                fn_args = super()._GetFnArgs(*args)
                given.append(fn_args.working_dir)
                raise InterruptedError

        with pytest.raises(InterruptedError):
            Asking().Do(self.inputs, outputs, self.properties)
        return pathlib.Path(given[0]).name


@pytest.fixture
def make_run(
    training_data: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    monkeypatch.syspath_prepend(str(MODELS))
    return lambda **properties: Run(training_data, tmp_path, **properties)


def test_trains_and_notes_the_figures(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.do()
    notes = record.read(run.model_run.uri)
    assert run.model.get_int_custom_property("steps") == 2
    assert run.model.get_float_custom_property("val_accuracy") == pytest.approx(
        notes["best"]["accuracy"]
    )
    assert run.model.get_float_custom_property("images_per_second") > 0
    assert (pathlib.Path(run.model.uri) / "Format-Serving" / "saved_model.pb").exists()
    (checkpoint_folder,) = run.checkpoints.iterdir()
    assert checkpoint_folder.name == make_run().working_dir()


@pytest.mark.parametrize(
    ("properties", "same"),
    [
        ({}, True),
        ({"parallel_virtual_devices": 4}, True),
        ({"parallel_strategy": "mirrored"}, True),
        ({"parallel_precision": "mixed_float16"}, True),  # refused there, by what it was
        ({"train_learning_rate": 0.02}, True),
        ({"train_resume_id": "other"}, False),
        ({"code_fingerprint": "fedcba9876543210"}, False),
    ],
)
def test_checkpoints_are_found_again_by_what_matters(
    make_run: Callable[..., Run], properties: dict[str, Any], same: bool
) -> None:
    assert (make_run(**properties).working_dir() == make_run().working_dir()) is same


@pytest.mark.parametrize("split", ["train", "val"])
def test_changed_data_never_finds_old_checkpoints(
    make_run: Callable[..., Run], tmp_path: pathlib.Path, split: str
) -> None:
    run = make_run()
    before = run.working_dir()
    copy = tmp_path / "copy"
    shutil.copytree(run.examples.uri, copy)
    run.examples.uri = str(copy)
    assert run.working_dir() == before, "the same data elsewhere is the same data"
    file = next((copy / f"Split-{split}").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert run.working_dir() != before


def test_a_missing_split_is_said_plainly(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    with pytest.raises(UserError, match="no split 'val' .*train, eval"):
        run.do()


def test_a_runtime_value_that_cannot_be_is_said_plainly(make_run: Callable[..., Run]) -> None:
    with pytest.raises(UserError, match="train.batch_size: .*greater than or equal to 1"):
        make_run(train_batch_size=0).do()
    with pytest.raises(UserError, match="stages: 2 needs strategy: grid"):
        make_run(parallel_strategy="mirrored", parallel_stages=2).do()


def test_a_model_of_another_execution_is_kept_and_refused(
    training_data: Any, tmp_path: pathlib.Path
) -> None:
    """As under TFX's own runner, which removes the outputs of what fails."""
    run = Run(training_data, tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    context = Executor.Context(pipeline_node=pipeline_pb2.PipelineNode())
    with pytest.raises(OutputExistsError) as caught:
        run.do(Executor(context))
    assert caught.value.folder == str(tmp_path / "model")
    assert (tmp_path / "model.kept" / "old").read_text() == "old"
    assert not run.checkpoints.exists()
    run.do(Executor(context))
    assert (tmp_path / "model" / "Format-Serving").exists()
