"""The executor with real artifacts: figures on the model, checkpoints by identity, processes."""

import json
import pathlib
import shutil
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from artifacts import OUTPUTS, artifacts, training_inputs, training_properties
from damages import WAYS
from recorded_runs import RecordedRuns
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import path_utils

from stagecraft.common.errors import UserError
from stagecraft.components import BaseModel
from stagecraft.components.fingerprints.training_properties import weights_fingerprint
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.outputs import OutputExistsError
from stagecraft.components.report import collect
from stagecraft.components.report.pages import sentences
from stagecraft.components.trainer import executor
from stagecraft.components.trainer.executor import Executor
from stagecraft.pipeline.local.summary import figure
from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.data.input_data import WEIGHTS
from stagecraft.trainer_module.models.initial_weights.source import (
    TRAINING_STATE,
    InitialWeightsError,
)
from stagecraft.trainer_module.training import record

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


class Run:
    """One execution."""

    def __init__(self, data: Any, folder: pathlib.Path, **properties: Any):
        self.inputs, self.outputs = (
            training_inputs(data.examples.parent),
            artifacts(OUTPUTS, folder),
        )
        [self.examples], [self.model] = self.inputs["examples"], self.outputs["model"]
        [self.model_run] = self.outputs["model_run"]
        self.checkpoints = folder / "checkpoints"
        self.properties = training_properties(SETTINGS, self.checkpoints) | properties

    def do(self, executor: Executor | None = None) -> None:
        (executor or Executor()).Do(self.inputs, self.outputs, self.properties)

    def working_dir(self) -> str:
        """The checkpoint folder that `run_fn` would be given."""
        given = []
        self.properties["run_fn"] = "unused"

        class Asking(Executor):
            def _GetFnArgs(self, *args: Any) -> Any:
                fn_args = super()._GetFnArgs(*args)
                given.append(fn_args.working_dir)
                raise InterruptedError

        with pytest.raises(InterruptedError):
            Asking().Do(self.inputs, self.outputs, self.properties)
        return pathlib.Path(given[0]).name


@pytest.fixture
def make_run(
    training_data: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    monkeypatch.syspath_prepend(str(MODELS))
    return lambda **properties: Run(training_data, tmp_path, **properties)


@pytest.mark.slow
def test_trains_and_notes_the_figures(make_run):
    run = make_run()
    run.do()
    notes = record.read(run.model_run.uri)
    assert run.model.get_int_custom_property("steps") == 2
    assert run.model.get_float_custom_property("val_accuracy") == pytest.approx(
        notes["best"]["accuracy"]
    )
    assert run.model.get_float_custom_property("images_per_second") > 0
    seconds = run.model.get_float_custom_property("training_seconds")
    assert seconds == pytest.approx(notes["seconds"]["train"])
    assert "export" in notes["seconds"]
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
        ({"train_initial_weights": "one.weights.h5"}, False),
    ],
)
def test_checkpoints_are_found_again_by_what_matters(
    make_run, properties, same, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("one.weights.h5").write_bytes(b"one")
    assert (make_run(**properties).working_dir() == make_run().working_dir()) is same


@pytest.mark.parametrize("split", ["train", "val"])
def test_changed_data_never_finds_old_checkpoints(make_run, tmp_path, split):
    run = make_run()
    before = run.working_dir()
    copy = tmp_path / "copy"
    shutil.copytree(run.examples.uri, copy)
    run.examples.uri = str(copy)
    assert run.working_dir() == before, "the same data elsewhere is the same data"
    file = next((copy / f"Split-{split}").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert run.working_dir() != before


def test_each_span_of_a_window_has_its_weight(make_run, own):
    run = make_run(run_fn=f"{own}.noted", train_window_weights="[1.0, 2.0]")
    other = standard_artifacts.Examples()
    other.uri, other.split_names = run.examples.uri, run.examples.split_names
    run.inputs["examples"] = [run.examples, other]
    for number, examples in zip((8, 7), run.inputs["examples"], strict=True):
        examples.set_int_custom_property("span", number)
        examples.set_string_custom_property("span_name", str(number))
    run.do()
    assert given(run)[WEIGHTS] == [2.0, 1.0]


def test_a_missing_split_is_said_plainly(make_run):
    run = make_run()
    run.examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    with pytest.raises(UserError, match="train, eval") as caught:
        run.do()
    assert (caught.value.file, caught.value.record) == (run.examples.uri, "val")


def test_a_runtime_value_that_cannot_be_is_said_plainly(make_run):
    with pytest.raises(UserError, match=">= 1|or equal to 1") as caught:
        make_run(train_batch_size=0).do()
    assert caught.value.setting == "train.batch_size"
    with pytest.raises(UserError):
        make_run(parallel_strategy="mirrored", parallel_stages=2).do()


@pytest.fixture
def tune(tmp_path: pathlib.Path) -> Callable[[Run, Any], None]:
    """Gives a run what TFX's Tuner found."""

    def give(run: Run, content: Any) -> None:
        found = standard_artifacts.HyperParameters()
        found.uri = str(tmp_path / "found")
        pathlib.Path(found.uri).mkdir(exist_ok=True)
        file = pathlib.Path(found.uri, "best_hyperparameters.txt")
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        run.inputs["hyperparameters"] = [found]

    return give


def test_found_values_replace_settings(make_run, own, tune):
    run = make_run(run_fn=f"{own}.noted")
    tune(run, {"space": [], "values": {"train.learning_rate": 0.5, "train.epochs": 2, "units": 3}})
    run.do()
    found = given(run)["settings"]
    assert (found["train_learning_rate"], found["train_epochs"]) == (0.5, 2.0)
    assert "train_steps" not in found and found["train_batch_size"] == 8


@pytest.mark.parametrize("launcher", ["auto", pytest.param("local", marks=pytest.mark.slow)])
def test_a_run_fn_of_the_library(make_run, own, launcher):
    """Here, and in a process of the Trainer, which starts no more."""
    run = make_run(run_fn=f"{own}.library", parallel_launcher=launcher)
    run.do()
    found = record.read(run.model_run.uri)["settings"]
    assert (found["train_learning_rate"], found["train_batch_size"]) == (0.25, 8)
    assert run.model.get_int_custom_property("steps") == 2
    assert next(run.checkpoints.rglob("2"), None) is not None


def test_other_found_values_find_no_old_checkpoints(make_run, tune):
    run = make_run()
    before = run.working_dir()
    keys = set()
    for rate in (0.1, 0.2, 0.1):
        tune(run, {"values": {"train.learning_rate": rate}})
        keys.add(run.working_dir())
    assert len(keys) == 2 and before not in keys


@pytest.mark.parametrize(
    ("content", "setting"),
    [
        ("no JSON", ""),
        ([], ""),
        ({"space": []}, ""),
        ({"values": {"train.units": 3}}, "hyperparameters"),
        ({"values": {"train.batch_size": "many"}}, "train.batch_size"),
        ({"values": {"parallel.stages": 2}}, "parallel"),
    ],
)
def test_found_values_are_checked(make_run, tune, content, setting):
    run = make_run()
    tune(run, content)
    with pytest.raises(UserError) as caught:
        run.do()
    assert caught.value.setting == setting
    assert bool(caught.value.file) == (not setting)


def _state(model: Any) -> pathlib.Path:
    """The folder with the state of the exported step."""
    [index] = pathlib.Path(model.uri, TRAINING_STATE).glob("*/state.index")
    return index.parent


@pytest.mark.slow
@pytest.mark.parametrize("has_state", [True, False])
def test_a_warm_start_continues_the_state_of_the_model_that_was_pushed(
    make_run, training_data, tmp_path, has_state
):
    """The folder from which it starts, and the steps that the optimizer has taken."""
    warm = {
        "train_initial_weights": "last_pushed",
        "train_warm_start": '{"optimizer_state": true}',
        "train_schedule": "constant",
    }
    first = make_run(**warm if has_state else {})
    first.do()
    store = RecordedRuns()
    made = store.execute([], standard_artifacts.Model, first.model.uri)
    pushed = store.execute([made], standard_artifacts.PushedModel)
    pushed.set_int_custom_property("pushed", 1)
    second = Run(training_data, tmp_path / "second", **warm)
    given = {"examples": [standard_artifacts.Examples()], "model": [made], "pushed_model": [pushed]}
    resolved = BaseModel("last_pushed").resolve_artifacts(store, given)
    second.inputs[executor.BASE_MODEL] = resolved["model"]
    second.do()
    notes = record.read(second.model_run.uri)
    assert notes["start"]["model"] == first.model.uri
    kept = _state(second.model)
    taken = checkpoint_files.read(kept).state["step"]
    if not has_state:  # the model alone, with a new optimizer
        assert notes["initial_weights"]["file"] == path_utils.serving_model_path(first.model.uri)
        assert taken == int(kept.name)
        return
    state = _state(first.model)
    assert notes["initial_weights"]["file"] == str(state)
    assert taken == int(state.name) + int(kept.name)


def test_initial_weights_are_known_by_content(make_run, tmp_path):
    def named(content: bytes, file: str = "w.weights.h5") -> str:
        (tmp_path / file).write_bytes(content)
        return make_run(train_initial_weights=str(tmp_path / file)).working_dir()

    first = named(b"one")
    assert named(b"one", "elsewhere.weights.h5") == first
    assert named(b"two") != first


def test_other_weights_than_the_pipelines_are_refused(make_run, tmp_path):
    file = tmp_path / "w.weights.h5"
    file.write_bytes(b"one")
    then = weights_fingerprint(str(file))
    properties = {"train_initial_weights": str(file), "initial_weights_fingerprint": then}
    make_run(**properties).working_dir()
    file.write_bytes(b"two")
    with pytest.raises(InitialWeightsError, match="other weights") as said:
        make_run(**properties).do()
    assert said.value.path == str(file)
    file.unlink()
    with pytest.raises(InitialWeightsError, match="no such file"):
        make_run(**properties).do()


OWN_RUN_FN = """
import json, os, pathlib
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation

def nothing(fn_args):
    folder = pathlib.Path(fn_args.serving_model_dir)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text("a model")

def noted(fn_args):
    nothing(fn_args)
    pathlib.Path(fn_args.model_run_dir).mkdir(parents=True)
    text = json.dumps(fn_args.custom_config)
    pathlib.Path(fn_args.model_run_dir, "given.json").write_text(text)

def library(fn_args):
    import stagecraft as sc
    sc.train(fn_args, learning_rate=0.25, model=build)

def build(num_classes):
    import keras
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(num_classes)])

def figures(fn_args):
    nothing(fn_args)
    found = [
        Evaluation(step, loss, accuracy=accuracy)
        for step, loss, accuracy in ((2, 1.5, 0.5), (4, 1.25, 0.75), (6, 1.0, 0.5))
    ]
    record.write_for(fn_args, steps=6, images_per_second=100, evaluations=found)

def garbage(fn_args):
    nothing(fn_args)
    pathlib.Path(fn_args.model_run_dir).mkdir(parents=True)
    pathlib.Path(fn_args.model_run_dir, "record.json").write_text(os.environ["RECORD"])
"""


def given(run: Run) -> dict[str, Any]:
    """The ``custom_config`` that ``noted`` got."""
    found: dict[str, Any] = json.loads(pathlib.Path(run.model_run.uri, "given.json").read_text())
    return found


@pytest.fixture
def own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_run_fn_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN_RUN_FN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "no usable record.json"),
        ("{steps", "not JSON"),
        ('{"steps": 3}', "it lacks best, images_per_second"),
        ("[]", "it lacks best"),
    ],
    ids=["nothing", "no JSON", "other JSON", "a list"],
)
def test_a_run_fn_without_a_record_publishes_its_model(
    make_run, own, record, said, caplog, monkeypatch
):
    monkeypatch.setenv("RECORD", record or "")
    run = make_run(run_fn=f"{own}.{'garbage' if record else 'nothing'}")
    run.do()
    assert (pathlib.Path(run.model.uri) / "Format-Serving" / "saved_model.pb").exists()
    assert run.model.get_string_custom_property("code_fingerprint") == "0123456789abcdef"
    assert not run.model.has_custom_property("steps")
    assert said in caplog.text
    assert "write_for" in caplog.text
    assert collect.read_training(run.model_run, run.model) is None


@pytest.mark.parametrize("way", WAYS)
def test_the_model_has_the_digests_of_its_files(make_run, own, way):
    run = make_run(run_fn=f"{own}.nothing")
    run.do()
    assert manifest.damages_of(run.model) == []
    graph = pathlib.Path(run.model.uri) / "Format-Serving" / "saved_model.pb"
    WAYS[way](graph)
    [damage] = manifest.damages_of(run.model)
    assert damage.path(run.model.uri) == str(graph)


def test_a_run_fn_of_ones_own_writes_a_record(make_run, own):
    run = make_run(run_fn=f"{own}.figures")
    run.do()
    assert run.model.get_int_custom_property("steps") == 6
    assert run.model.get_float_custom_property("val_accuracy") == 0.75
    assert figure("Trainer", {"model": [run.model]}) == "100 images/s, val accuracy 0.750"
    found = collect.read_training(run.model_run, None)
    assert found is not None
    assert found.record["examples"] == {"train": 24, "val": 10}
    assert sentences.grid_text(found.record) == "one device"
    assert sentences.trained(found)


def test_a_model_of_another_execution_is_kept_and_refused(make_run, own, tmp_path):
    """As under TFX's own runner, which removes the outputs of what fails."""
    run = make_run(run_fn=f"{own}.nothing")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    context = Executor.Context(pipeline_node=pipeline_pb2.PipelineNode())
    with pytest.raises(OutputExistsError) as caught:
        run.do(Executor(context))
    assert caught.value.file == str(tmp_path / "model")
    assert (tmp_path / "model.kept" / "old").read_text() == "old"
    assert not run.checkpoints.exists()
    run.do(Executor(context))
    assert (tmp_path / "model" / "Format-Serving").exists()


# Where the training runs.


TWO: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


def run_fn(fn_args: Any) -> None:
    fn_args.model_run_dir = "trained"


def _fn_args(**settings: Any) -> types.SimpleNamespace:
    config = {"settings": settings, executor._RUN_FN: f"{__name__}.run_fn"}
    return types.SimpleNamespace(custom_config=config, model_run_dir="")


def test_in_this_process(monkeypatch):
    here = types.SimpleNamespace(run_fn=run_fn)
    monkeypatch.setitem(sys.modules, __name__, here)
    fn_args = _fn_args()
    executor.run(fn_args)
    assert fn_args.model_run_dir == "trained"
    assert fn_args.custom_config == {"settings": {}}  # as `run_fn` knows it


def test_in_processes_of_their_own(monkeypatch):
    started: list[Any] = []

    class Supervisor:
        def __init__(self, parallel: Any, **more: Any):
            started.append((parallel.workers, more["program"], more["first_line"]))

        def run(self) -> None:
            started.append("run")

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(executor.launcher, "Supervisor", Supervisor)
    settings = {f"parallel_{key}": value for key, value in TWO.items()}
    executor.run(_fn_args(**settings))
    (workers, program, told), run = started
    assert (workers, program[-1], run) == (2, "-", "run")
    assert f'"run_fn": "{__name__}.run_fn"' in told and '"parallel_workers": 2' in told
