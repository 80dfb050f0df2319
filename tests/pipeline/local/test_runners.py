"""The runners in this process, on a stand-in pipeline. One import of TFX for all."""

import contextlib
import json
import logging
import pathlib
import re
import signal
import socket
import subprocess

import pytest
from damages import WAYS
from past_runs import executions
from processes import signals
from tfx.orchestration.pipeline import RunOptions

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.file import MetadataFileError
from stagecraft.components.metadata.manifest import DamagedArtifactError
from stagecraft.components.metadata.outputs import OutputExistsError
from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.history import past_run, report, runs
from stagecraft.pipeline.local.runners import BeamRunner, LocalRunner

STAND_IN = re.compile(r"[^\s(]+/stand_in\.py:\d+")
"""Where an exception comes from."""

RUNNERS = {"local": LocalRunner, "beam": BeamRunner}


class Recorder(logging.Handler):
    """Keeps events."""

    def __init__(self):
        super().__init__()
        self.events: list[dict] = []

    def emit(self, record):
        if hasattr(record, "event"):
            self.events.append(record.event)

    def states(self):
        """Last state of each node."""
        return {e["node"]: e["state"] for e in self.events if e["kind"] == "node"}

    def cause(self):
        return next(e["cause"] for e in self.events if e.get("state") == "failed")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(behaviour, runner=, options=, settings=)`` runs the stand-in in ``tmp_path``; what it
    told."""
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
    import stand_in

    def run(behaviour=None, runner="local", options=None, settings=()):
        monkeypatch.setenv("STAND_IN", json.dumps(behaviour or {}))
        recorder = run.recorder = Recorder()
        logger = logging.getLogger("stagecraft")
        logger.addHandler(recorder)
        try:
            pipeline = stand_in.create_pipeline(
                pipeline_settings.load("quickstart", settings), tmp_path
            )
            run.runner = RUNNERS[runner]()
            run.runner.run(pipeline, run_options=options)
        finally:
            logger.removeHandler(recorder)
        return recorder

    return run


@pytest.fixture
def execution_states(tmp_path):
    """``() -> [state, …]`` of all executions, oldest first."""
    return lambda: [state for _, state in executions(tmp_path)]


def halves(output):
    """Nodes that have outputs on disk."""
    return sorted(p.parent.parent.parent.name for p in output.glob("pipeline_root/*/*/*/half"))


def left(output):
    """Working folders that nobody needs any more."""
    system = output / "pipeline_root"
    kinds = ("stateful_working_dir/*", "driver_execution/*", "executor_execution/*/.temp")
    return [str(p) for kind in kinds for p in system.glob(f"*/.system/{kind}")]


@contextlib.contextmanager
def interrupted(output, *told):
    """Interrupts this process as soon as each of these files exists, which ends the block."""
    with contextlib.ExitStack() as watchers:
        for file in told:
            watchers.enter_context(signals(output / file, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_second_run_takes_everything_from_the_cache(run, runner, tmp_path):
    told = run(runner=runner)
    assert told.states() == {"Make": "done", "Count": "done", "Last": "done"}
    assert told.events[0]["kind"] == "pipeline"
    assert told.events[0]["nodes"] == ["Make", "Count", "Last"]
    assert all(e["seconds"] >= 0 for e in told.events if e.get("state") == "done")

    assert set(run(runner=runner).states().values()) == {"cached"}
    found = run.runner.last_run.outputs()
    assert found["Make"]["made"][0].get_int_custom_property("count") == 6
    assert not left(tmp_path)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("node", ["Make", "Count"])  # Count works in a DoFn
@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("fail", "ValueError: {node} cannot go on (STAND_IN)"),
        ("user_error", "data.bin: record 7 has label 10; expected 0 to 9 ({node})"),
    ],
)
def test_a_failure_is_told_and_leaves_nothing(
    run, runner, node, what, cause, tmp_path, execution_states
):
    with pytest.raises(Exception, match="cannot go on|record 7"):
        run({node: what}, runner)
    told = run.recorder
    assert told.states()[node] == "failed"
    kept = past_run.read(runs.choose(tmp_path))
    assert (kept.state, kept.component) == ("failed", node)
    for text in (told.cause(), kept.cause):
        assert STAND_IN.sub("STAND_IN", text) == cause.format(node=node)
    assert execution_states()[-1] == "FAILED"
    assert node not in halves(tmp_path)
    assert not left(tmp_path)

    first = "done" if node == "Make" else "cached"
    assert run(runner=runner).states() == {"Make": first, "Count": "done", "Last": "done"}


def test_a_node_whose_inputs_are_not_there_fails(run, tmp_path, execution_states):
    """TFX's own launcher marks it failed, and lets the run go on as if nothing were."""
    import stand_in
    from tfx.types.channel import Channel
    from tfx.types.standard_artifacts import Examples

    pipeline = stand_in.create_pipeline(pipeline_settings.load("quickstart"), tmp_path)
    pipeline.components = [stand_in.Last(counted=Channel(type=Examples), output=str(tmp_path))]
    with pytest.raises(RuntimeError, match="no inputs: .*counted"):
        LocalRunner().run(pipeline)
    assert execution_states() == ["FAILED"]


def test_a_component_that_exits_fails(run, tmp_path, execution_states):
    with pytest.raises(SystemExit):
        run({"Make": "exit"})
    assert STAND_IN.sub("STAND_IN", run.recorder.cause()) == "SystemExit: 3 (STAND_IN)"
    assert execution_states() == ["FAILED"]
    assert halves(tmp_path) == []


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("node", ["Make", "Count"])
@pytest.mark.parametrize("what", ["hang", "train"])
def test_an_interrupted_run_leaves_nothing_and_goes_on_from_the_cache(
    run, runner, node, what, tmp_path, execution_states
):
    stock = signal.getsignal(signal.SIGINT)
    with interrupted(tmp_path, "hanging"):
        run({node: what}, runner)
    assert (tmp_path / "saved").exists() == (what == "train")
    assert run.recorder.states()[node] == "interrupted"
    assert execution_states()[-1] == "FAILED"
    assert node not in halves(tmp_path)
    assert not left(tmp_path)
    assert signal.getsignal(signal.SIGINT) == stock
    stopped = past_run.read(runs.choose(tmp_path))
    assert (stopped.state, stopped.component, stopped.cause) == ("stopped", node, "")

    first = "done" if node == "Make" else "cached"
    assert run(runner=runner).states() == {"Make": first, "Count": "done", "Last": "done"}


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_second_signal_does_not_wait_for_a_training(run, runner, tmp_path):
    with interrupted(tmp_path, "hanging", "asked"):
        run({"Make": "train_on"}, runner)
    assert not (tmp_path / "saved").exists()


def test_a_partial_run_executes_its_first_node_even_if_cached(run):
    run()
    told = run(options=RunOptions(from_nodes=["Count"], to_nodes=["Count"]))
    assert told.states() == {"Count": "done"}
    assert told.events[0]["skipped"] == ["Make", "Last"]
    assert set(run.runner.last_run.outputs()) == {"Make", "Count"}
    assert run(options=RunOptions(to_nodes=["Make"])).states() == {"Make": "cached"}


def test_what_is_known_of_a_partial_run_is_also_that_of_what_it_left_out(run, tmp_path):
    run()
    run(options=RunOptions(from_nodes=["Count"]))
    partial, whole = map(past_run.read, runs.list_runs(tmp_path))
    assert (partial.pipeline, partial.state) == (whole.pipeline, "done")
    assert {each.name for each in partial.components} == {"Make", "Count", "Last"}
    assert partial.settings == whole.settings
    assert report.report_data(runs.choose(tmp_path)).pipeline == whole.pipeline


def test_a_partial_run_starts_from_the_newest_run_that_has_what_it_needs(run):
    run()
    with pytest.raises(ValueError, match="Make cannot go"):
        run({"Make": "fail"}, options=RunOptions(from_nodes=["Make"]))
    assert run(options=RunOptions(from_nodes=["Last"])).states() == {"Last": "done"}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("how", ["hang", "fail"])
def test_a_step_that_was_to_run_anew_still_runs_in_the_next_run(run, runner, how, tmp_path):
    run(runner=runner)
    from_count = RunOptions(from_nodes=["Count"])
    failing = pytest.raises(ValueError, match="Count cannot go")
    with interrupted(tmp_path, "hanging") if how == "hang" else failing:
        run({"Count": how}, options=from_count)
    # Without --from: what Count made before must not be taken.
    assert run(runner=runner).states() == {"Make": "cached", "Count": "done", "Last": "done"}
    assert set(run(runner=runner).states().values()) == {"cached"}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_result_in_the_cache_is_not_used(run, runner, way, tmp_path):
    run(runner=runner)
    [file] = tmp_path.glob("pipeline_root/Make/made/*/half")
    WAYS[way](file)
    told = run(runner=runner)
    assert told.states() == {"Make": "done", "Count": "done", "Last": "done"}
    [note] = [event["text"] for event in told.events if event["kind"] == "note"]
    assert note.startswith("Make runs again") and str(file) in note
    assert set(run(runner=runner).states().values()) == {"cached"}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_partial_run_refuses_damaged_inputs(run, runner, way, tmp_path):
    run(runner=runner)
    [file] = tmp_path.glob("pipeline_root/Make/made/*/half")
    WAYS[way](file)
    with pytest.raises(Exception, match="half") as caught:  # Beam raises a RuntimeError
        run(runner=runner, options=RunOptions(from_nodes=["Count"]))
    assert run.recorder.states() == {"Count": "failed"}
    if runner == "local":
        assert isinstance(caught.value, DamagedArtifactError)
        assert (caught.value.file, caught.value.suggestion) == (str(file), "--from Make")
    assert "--from Make" in run.recorder.cause()
    again = run(runner=runner, options=RunOptions(from_nodes=["Make"]))
    assert again.states() == {"Make": "done", "Count": "done", "Last": "done"}


def test_a_result_without_a_manifest_is_used(run, tmp_path, monkeypatch):
    """Such as one of an earlier release."""
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "add", lambda *words: None)
        run()
    [file] = tmp_path.glob("pipeline_root/Make/made/*/half")
    file.write_text("other")
    assert set(run().states().values()) == {"cached"}


EMBEDDED = ("beam.runner=flink", "beam.args=[--job_endpoint=embed, --parallelism=1]")
"""Beam's client of Flink, with Beam's job server in this process in place of Flink's."""


@pytest.mark.parametrize("runner", RUNNERS)
def test_where_beam_runs_is_no_part_of_a_cache_key(run, runner):
    assert run(runner=runner, settings=EMBEDDED).states()["Count"] == "done"
    for settings in (
        (EMBEDDED[0], "beam.args=[--job_endpoint=elsewhere:1, --parallelism=8]"),
        ("beam.runner=spark", "beam.args=[--job_endpoint=elsewhere:2, --job_name=other]"),
        ("beam.args=[--direct_num_workers=2, --s3_secret_access_key=x]",),
        (),
    ):
        assert set(run(runner=runner, settings=settings).states().values()) == {"cached"}


def test_arguments_of_the_users_code_are_part_of_a_cache_key(run):
    run()
    for mine in ("1", "2"):
        settings = (f"beam.unchecked_args=[--mine={mine}]",)
        assert run(settings=settings).states() == {
            "Make": "cached", "Count": "done", "Last": "done",
        }  # fmt: skip
        assert set(run(settings=settings).states().values()) == {"cached"}


@pytest.mark.parametrize("runner", RUNNERS)
def test_outputs_that_the_store_does_not_know_are_never_mixed(run, runner, tmp_path):
    run(runner=runner)
    files = {path: path.read_bytes() for path in tmp_path.glob("pipeline_root/**/half")}
    (tmp_path / "metadata.db").rename(tmp_path / "lost.db")
    with pytest.raises(OutputExistsError) as caught:
        run(runner=runner)
    assert caught.value.file.startswith(str(tmp_path / "pipeline_root"))
    assert run.recorder.events == []
    assert {path: path.read_bytes() for path in files} == files

    (tmp_path / "pipeline_root").rename(tmp_path / "kept")
    assert set(run(runner=runner).states().values()) == {"done"}


def test_a_store_that_cannot_be_opened_is_refused_by_name(run, tmp_path):
    run()
    metadata_db = tmp_path / "metadata.db"
    metadata_db.write_bytes(metadata_db.read_bytes()[:10_000])
    with pytest.raises(MetadataFileError) as caught:
        run()
    assert (caught.value.file, caught.value.problem) == (str(metadata_db), "truncated")
    assert run.recorder.events == []


def test_a_run_notes_its_steps_before_they_begin(run, tmp_path):
    with pytest.raises(ValueError, match="Make cannot go"):
        run({"Make": "fail"})
    found = past_run.read(runs.choose(tmp_path))
    assert [(each.name, each.state) for each in found.components] == [
        ("Make", "failed"),
        ("Count", "not run"),
        ("Last", "not run"),
    ]
    run(options=RunOptions(to_nodes=["Make"]))
    found = past_run.read(runs.choose(tmp_path))
    assert found.state == "done"
    assert [each.state for each in found.components] == ["done", "skipped", "skipped"]


def test_a_partial_run_without_an_earlier_one_is_refused(run):
    with pytest.raises(UserError) as caught:
        run(options=RunOptions(from_nodes=["Last"]))
    assert (caught.value.setting, caught.value.value) == ("--from", ["Count", "Make"])
    with pytest.raises(UserError) as caught:
        run(options=RunOptions(from_nodes=["Cuont"]))
    assert caught.value.suggestion == "Count"


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_second_run_on_the_same_metadata_is_refused(
    run, runner, tmp_path, execution_states, another_run
):
    run()
    before = execution_states()
    with another_run():
        with pytest.raises(UserError) as caught:
            run(runner=runner)
        assert (caught.value.setting, caught.value.value) == ("--output", str(tmp_path))
        assert execution_states() == before
    assert set(run(runner=runner).states().values()) == {"cached"}


@pytest.mark.parametrize("runner", RUNNERS)
def test_nothing_is_downloaded_and_no_process_started(run, runner, monkeypatch):
    """Newer Beam's own choice is to fetch another runner's binary and to start it."""

    attempts = []

    def refuse_process(self, command, *args, **kwargs):
        attempts.append(f"process {command}")
        raise OSError("not here")

    look_up = socket.getaddrinfo

    def refuse_others(host, *args, **kwargs):
        if host in (None, "localhost", "127.0.0.1", "::1"):
            return look_up(host, *args, **kwargs)
        attempts.append(f"host {host}")
        raise socket.gaierror("not here")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse_process)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_others)
    run(runner=runner)
    assert attempts == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_bare_beam_pipeline_is_pinned_while_it_runs(run, runner, monkeypatch):
    import apache_beam as beam

    seen = []
    init = beam.Pipeline.__init__

    def spy(self, *args, **kwargs):
        init(self, *args, **kwargs)
        seen.append(type(self.runner).__name__)

    monkeypatch.setattr(beam.Pipeline, "__init__", spy)
    run(runner=runner)
    assert set(seen) == {"FnApiRunner"}
    assert len(seen) == (2 if runner == "beam" else 1)
