"""What is known of a past run, whole or not; and that a run that goes on is not disturbed."""

import json
import sys
import threading
from concurrent import futures

import pytest
from ml_metadata.proto import metadata_store_pb2 as pb
from past_runs import DIGEST, Output, State
from processes import ran

from stagecraft.components.metadata.run_metadata import Notes
from stagecraft.pipeline.cli.terminal import past_run_text
from stagecraft.pipeline.history import past_run, runs
from stagecraft.pipeline.local import lock
from stagecraft.pipeline.settings import PipelineSettings, load


def newest(output):
    return past_run.read(runs.choose(output.folder))


@pytest.fixture
def output(tmp_path):
    return Output(tmp_path / "out")


def test_a_whole_run(output):
    output.whole("one", "train.epochs=3", "parallel.remat=true", accuracy=0.75)
    run = newest(output)
    assert (run.id, run.pipeline, run.state, run.component) == ("one", "quickstart", "done", None)
    assert (run.source, run.fingerprint) == ("sample", DIGEST)
    assert run.examples == {"train": 4500, "val": 500, "eval": 1000}
    assert run.base == "quickstart"
    assert run.changed == {"parallel.remat": True, "train.epochs": 3.0}
    assert run.settings_are_whole
    assert run.code == {"Transform": "t0", "Trainer": "c0de"}
    assert run.topology == "2 × 2 grid"
    assert run.metrics == {
        "accuracy": 0.75,
        "loss": 1.5,
        "steps": 703.0,
        "val_accuracy": 0.25,
        "images_per_second": 900.5,
    }
    assert (run.blessed, run.pushed) == (True, "/serving/17")
    assert run.components[0].name == "Cifar10ExampleGen"
    assert run.seconds >= 0


def test_a_model_that_is_not_blessed_is_not_pushed(output):
    output.whole("one", blessed=0)
    assert (newest(output).blessed, newest(output).pushed) == (False, None)


def test_a_run_that_failed_has_the_settings_of_the_steps_that_began(output):
    run = output.begin("one")
    output.step(
        run, "Cifar10ExampleGen", State.FAILED, dataset="cifar100_coarse", source="x.tar.gz"
    )
    found = newest(output)
    assert (found.state, found.component) == ("failed", "Cifar10ExampleGen")
    assert found.settings == {
        "data.dataset": "cifar100", "data.label": "coarse", "data.source": "x.tar.gz",
    }  # fmt: skip
    assert not found.settings_are_whole
    assert (found.source, found.topology) == ("x.tar.gz", "")
    assert (found.blessed, found.pushed) == (None, None)


def test_a_run_that_was_swept_was_stopped(output):
    note = '{"resultMessage": "stopped before its end", "code": 1}'
    output.step(output.begin("one"), "Trainer", State.FAILED, __execution_result__=note)
    found = newest(output)
    assert (found.state, found.component, found.cause) == ("stopped", "Trainer", "")


def test_the_trainers_properties_say_what_the_settings_say(output):
    settings = load("quickstart", ("train.steps=20", "parallel.jit=true"))
    output.step(output.begin("one"), "Trainer", State.FAILED, **settings.flat())
    whole = past_run.flat(settings.model_dump(mode="json"))
    known = newest(output).settings
    assert known == {name: value for name, value in whole.items() if name in known}
    assert {name.partition(".")[0] for name in known} == {"task", "train", "parallel"}
    assert known["train.epochs"] is None and known["parallel.jit"] is True
    assert newest(output).topology == "one device"


def test_without_a_preset_of_its_name_the_defaults_count(tmp_path):
    output = Output(tmp_path, "mine")
    default = PipelineSettings().flat()
    flat = {name: value for name, value in default.items() if name.startswith("train_")}
    output.step(output.begin("one"), "Trainer", **(flat | {"train_model": "resnet20"}))
    found = newest(output)
    assert (found.base, found.changed) == ("defaults", {"train.model": "resnet20"})


def test_unfinished_is_stopped_unless_its_process_is_there(output):
    output.step(output.begin("one"), "Trainer", State.RUNNING)
    assert (newest(output).state, newest(output).component) == ("stopped", "Trainer")
    with lock.held(output.folder):  # by a later run, which has no name yet
        assert newest(output).state == "stopped"
        second = output.begin("two")
        assert (newest(output).state, newest(output).component) == ("running", None)
        output.step(second, "Trainer", State.RUNNING)
        assert (newest(output).state, newest(output).component) == ("running", "Trainer")
        assert past_run.read(runs.choose(output.folder, "one")).state == "stopped"
    assert newest(output).state == "stopped"


def test_reading_changes_nothing_and_hinders_no_writer(output):
    output.whole("one")
    before = (output.folder / "metadata.db").read_bytes()
    found = runs.choose(output.folder)
    past_run.read(found)
    assert (output.folder / "metadata.db").read_bytes() == before
    assert not (output.folder / ".lock").exists()

    over = threading.Event()

    def keep_reading():
        times = 0
        while times < 2 or not over.is_set():
            for each in runs.list_runs(output.folder)[:2]:
                past_run.read(each)
            times += 1
        return times

    with futures.ThreadPoolExecutor() as pool:
        reading = pool.submit(keep_reading)
        try:
            for number in range(20):  # a write that is refused raises
                output.step(output.begin(f"more-{number}"), "Trainer")
        finally:
            over.set()
        assert reading.result() >= 2
    assert len(runs.list_runs(output.folder)) == 21


def test_a_run_that_has_only_just_a_name(output):
    kind = output.store.put_context_type(pb.ContextType(name="pipeline_run"))
    output.store.put_contexts([pb.Context(type_id=kind, name="one")])
    assert (newest(output).pipeline, newest(output).state) == ("", "stopped")
    with lock.held(output.folder):
        assert newest(output).state == "stopped"  # not by who holds it now


def test_neither_tfx_nor_tensorflow_is_needed(output):
    output.whole("one")
    code = (
        "import pathlib, sys; from stagecraft.pipeline.history import past_run, runs; "
        f"past_run.read(runs.choose(pathlib.Path({str(output.folder)!r}))); "
        "print([m for m in ('tfx', 'tensorflow', 'apache_beam', 'numpy') if m in sys.modules])"
    )
    assert ran(sys.executable, "-c", code).stdout.strip() == "[]"


NOTES = Notes(
    nodes=("Cifar10ExampleGen", "Transform", "Trainer"),
    skipped=("Transform",),
    command="stagecraft run --set train.epochs=3",
    settings="train:\n  epochs: 3.0\n",
)


def test_a_run_that_failed_has_all_settings_and_the_steps_that_never_ran(output):
    run = output.begin("one", NOTES)
    output.step(run, "Cifar10ExampleGen", State.FAILED, dataset="cifar10", source="sample")
    found = newest(output)
    assert found.settings_are_whole
    assert found.settings["train.epochs"] == 3.0
    assert [(each.name, each.state) for each in found.components] == [
        ("Cifar10ExampleGen", "failed"),
        ("Transform", "skipped"),
        ("Trainer", "not run"),
    ]


def test_a_run_that_ended_between_two_steps_was_stopped(output):
    run = output.begin("one", NOTES)
    assert newest(output).state == "stopped"
    output.step(run, "Cifar10ExampleGen")
    assert newest(output).state == "stopped"
    output.step(run, "Trainer")
    assert newest(output).state == "done"


def test_data_of_another_example_gen(output):
    """TFX's own note neither source nor counts on the artifact."""
    run = output.begin("one")
    examples = output.artifact("Examples", input_fingerprint="split:train,num_files:200,…")
    output.step(run, "FileBasedExampleGen", outputs=[examples], input_base="/home/me/pictures")
    folder = output.folder / "model_run"
    folder.mkdir()
    one = {"strategy": "one_device", "stages": 1, "workers": 1, "devices": ["CPU:0"]}
    counts = {"train": 200, "val": 40}
    (folder / "record.json").write_text(json.dumps({"topology": one, "examples": counts}))
    output.step(run, "Trainer", outputs=[output.artifact("ModelRun", folder)])
    found = newest(output)
    assert (found.source, found.examples) == ("/home/me/pictures", counts)
    assert len(found.fingerprint) == 64


def test_the_metric_of_another_task(output):
    run = output.begin("one")
    properties = {"monitor": "mse", "noun": "examples", "val_mse": 0.5, "val_mae": 0.25, "steps": 7}
    output.step(run, "Trainer", outputs=[output.artifact("Model", **properties)])
    trained = newest(output)
    assert (trained.monitor, past_run_text.result(trained)) == ("mse", "")
    assert trained.metrics == {"val_mse": 0.5, "val_mae": 0.25, "steps": 7}
    figures = output.artifact("system.Metrics", mse=0.25, mae=0.125, monitor="mse")
    output.step(run, "TrainingReport", outputs=[figures])
    assert past_run_text.result(newest(output)) == "mse 0.250"
    assert newest(output).as_json()["monitor"] == "mse"
