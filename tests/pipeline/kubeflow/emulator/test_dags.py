"""Conditions, DAGs in DAGs and exit handlers, with steps that are small programs."""

import json

import pytest
from two_steps import spec, task

from stagecraft.pipeline.cli.terminal.run_view import RunState
from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.emulator.run import Run
from stagecraft.pipeline.kubeflow.linter import check
from stagecraft.pipeline.kubeflow.spec import EXIT

MAKE = """
import json, os, pathlib, sys
given = json.loads(sys.argv[1])
out = given["outputs"]
[made] = out["artifacts"]["made"]["artifacts"]
root = pathlib.Path(os.environ["STAGECRAFT_LAUNCHER_ROOT"])
(root / "minio" / made["uri"].removeprefix("minio://")).write_text("made")
pathlib.Path(out["parameters"]["n"]["outputFile"]).write_text("3")
written = {"artifacts": {"made": {"artifacts": [{"metadata": {"blessed": 1}}]}}}
pathlib.Path(out["outputFile"]).write_text(json.dumps(written))
"""
SHOW = "import json, sys; print(json.dumps(json.loads(sys.argv[1])['inputs']['parameterValues']))"
FAIL = "raise SystemExit(1)"
OK = "pass"

TYPE = {"artifactType": {"schemaTitle": "system.Artifact"}}
MAKES = {
    "outputDefinitions": {
        "artifacts": {"made": TYPE},
        "parameters": {"n": {"parameterType": "NUMBER_INTEGER"}},
    }
}
READS = {"inputDefinitions": {"artifacts": {"made": TYPE}}}
MADE = {"taskOutputArtifact": {"producerTask": "make", "outputArtifactKey": "made"}}
N = {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "n"}}
HOLDS = "inputs.artifacts['made'].artifacts[0].metadata['blessed'] == 1.0"
NOT = f"!({HOLDS})"


def on(name, condition, **more):
    """A task that reads what ``make`` made, and has a condition on it."""
    inputs = {"artifacts": {"made": MADE}}
    return task(name, inputs=inputs, triggerPolicy={"condition": condition}, **more)


def within(what, dag, tasks, *, inputs=None, outputs=None):
    """Puts tasks of the root into a DAG, which becomes the component of a task."""
    root = what["root"]["dag"]["tasks"]
    inner = {name: root.pop(name) for name in tasks}
    component = {"dag": {"tasks": inner, **({"outputs": outputs} if outputs else {})}}
    what["components"][dag] = component | ({"inputDefinitions": inputs} if inputs else {})
    root[dag] = task(dag)
    return root[dag]


def exits(name, dag, **more):
    return task(name, after=(dag,), triggerPolicy={"strategy": EXIT}, **more)


def emulate(what, folder, **arguments):
    for label, executor in what["deploymentSpec"]["executors"].items():
        executor["container"]["args"] = [label]  # the backend mixes up equal containers
    assert check(json.dumps(what)) == []
    run = Run(Document(what, {}), folder, arguments)
    events = []
    run.run(parallel=2, on_event=lambda name, state, _: events.append((name, state)))
    assert [name for name, state in events if state != "running"] == list(run.ended)
    return run


def states(run):
    return {name: how.state for name, how in run.ended.items()}


@pytest.mark.parametrize(("condition", "state"), [(HOLDS, "done"), (NOT, "skipped")])
def test_a_condition(tmp_path, condition, state):
    """What needs a skipped step does not run, as if Argo had omitted it; other steps do."""
    what = spec(
        {"make": MAKE, "use": OK, "after": OK, "other": OK},
        {
            "make": task("make"),
            "use": on("use", condition),
            "after": task("after", after=("use",)),
            "other": task("other", after=("make",)),
        },
        make=MAKES,
        use=READS,
    )
    run = emulate(what, tmp_path)
    assert states(run) == {"make": "done", "use": state, "after": state, "other": "done"}
    assert not run.failed
    assert bool(run.ended["use"].cause) is (state == "skipped")
    assert run.ended["after"].attempts == (state == "done")


def test_a_condition_that_cannot_be_evaluated(tmp_path):
    """The driver of the task fails, and with it the run."""
    condition = "inputs.artifacts['made'].artifacts[0].metadata['gone'] == 1.0"
    what = spec(
        {"make": MAKE, "use": OK, "after": OK},
        {
            "make": task("make"),
            "use": on("use", condition),
            "after": task("after", after=("use",)),
        },
        make=MAKES,
        use=READS,
    )
    run = emulate(what, tmp_path)
    assert states(run) == {"make": "done", "use": "failed"} and run.failed


def test_a_condition_of_a_dag_that_cannot_be_evaluated(tmp_path):
    """The driver of the DAG fails; the view of the run shows it besides the steps."""
    what = spec({"use": OK}, {"use": task("use")})
    within(what, "branch", ["use"])["triggerPolicy"] = {"condition": "1 / 0 == 1"}
    run, view = Run(Document(what, {}), tmp_path, {}), RunState(["use"])
    run.run(
        parallel=1,
        on_event=lambda name, state, _: view.apply({"kind": "node", "node": name, "state": state}),
    )
    assert states(run) == {"use": "skipped", "branch": "failed"} and run.failed
    assert view.failed == "branch" and view.nodes["use"].state == "skipped"


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [(HOLDS, HOLDS, "done"), (HOLDS, NOT, "skipped"), (NOT, HOLDS, "skipped")],
)
def test_nested_conditions(tmp_path, outer, inner, expected):
    """A DAG with a condition, and a task with one in it, as KFP's SDK compiles them."""
    what = spec(
        {"make": MAKE, "use": OK, "plain": OK},
        {"make": task("make"), "use": on("use", inner), "plain": task("plain")},
        make=MAKES,
        use=READS,
    )
    inputs = READS["inputDefinitions"]
    dag = within(what, "branch", ["use", "plain"], inputs=inputs)
    tasks = what["components"]["branch"]["dag"]["tasks"]
    tasks["use"]["inputs"] = {"artifacts": {"made": {"componentInputArtifact": "made"}}}
    dag |= {"inputs": {"artifacts": {"made": MADE}}, "triggerPolicy": {"condition": outer}}
    run = emulate(what, tmp_path)
    plain = "skipped" if outer == NOT else "done"
    assert states(run) == {"make": "done", "use": expected, "plain": plain}


def test_parameters_and_outputs_of_a_dag(tmp_path):
    """``n`` comes out of an inner DAG; ``word`` goes from the root into another."""
    what = spec(
        {"make": MAKE, "show": SHOW},
        {"make": task("make"), "show": task("show")},
        make=MAKES,
        show={
            "inputDefinitions": {
                "parameters": {
                    "n": {"parameterType": "NUMBER_INTEGER"},
                    "word": {"parameterType": "STRING"},
                }
            }
        },
    )
    selector = {"producerSubtask": "make", "outputParameterKey": "n"}
    within(what, "first", ["make"], outputs={"parameters": {"n": {"valueFromParameter": selector}}})
    what["components"]["first"]["outputDefinitions"] = {
        "parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}
    }
    parameters = {"n": {"parameterType": "NUMBER_INTEGER"}, "word": {"parameterType": "STRING"}}
    dag = within(what, "second", ["show"], inputs={"parameters": parameters})
    inner = what["components"]["second"]["dag"]["tasks"]["show"]
    inner["inputs"] = {
        "parameters": {name: {"componentInputParameter": name} for name in parameters}
    }
    source = {"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "n"}}
    word = {"componentInputParameter": "word"}
    dag["inputs"] = {"parameters": {"n": source, "word": word}}
    what["root"]["inputDefinitions"] = {"parameters": {"word": {"parameterType": "STRING"}}}
    run = emulate(what, tmp_path, word="hello")
    assert states(run) == {"make": "done", "show": "done"}
    assert json.loads(run.ended["show"].log.read_text()) == {"n": 3, "word": "hello"}


@pytest.mark.parametrize(
    ("program", "state", "told"), [(OK, "done", "COMPLETE"), (FAIL, "failed", "FAILED")]
)
def test_an_exit_handler(tmp_path, program, state, told):
    """It runs after success and after failure, and learns which; nothing else starts."""
    what = spec(
        {"work": program, "after": OK, "bye": SHOW},
        {"work": task("work"), "after": task("after", after=("work",))},
    )
    within(what, "tfx-dag", ["work", "after"])
    what["components"]["bye"] = {
        "executorLabel": "exec-bye",
        "inputDefinitions": {"parameters": {"status": {"parameterType": "STRING"}}},
    }
    status = {"parameters": {"status": {"taskFinalStatus": {"producerTask": "tfx-dag"}}}}
    what["root"]["dag"]["tasks"]["bye"] = exits("bye", "tfx-dag", inputs=status)
    run = emulate(what, tmp_path)
    assert states(run) == {"work": state, "bye": "done"} | (
        {"after": "done"} if program == OK else {}
    )
    assert run.failed is (program == FAIL)
    status = json.loads(json.loads(run.ended["bye"].log.read_text())["status"])
    assert status["state"] == told and status["pipelineTaskName"] == "tfx-dag"


def test_an_exit_handler_that_fails(tmp_path):
    """The exit code of the command tells it; the steps before it stay as they were."""
    what = spec({"work": OK, "bye": FAIL}, {"work": task("work"), "bye": exits("bye", "work")})
    run = emulate(what, tmp_path)
    assert states(run) == {"work": "done", "bye": "failed"} and run.failed


@pytest.mark.parametrize("program", [OK, FAIL])
def test_an_exit_handler_with_steps_of_its_own(tmp_path, program):
    """They run after a failure, too; one that fails stops those after it."""
    what = spec(
        {"work": FAIL, "mail": program, "tidy": OK},
        {"work": task("work"), "mail": task("mail"), "tidy": task("tidy", after=("mail",))},
    )
    within(what, "bye", ["mail", "tidy"])
    what["root"]["dag"]["tasks"]["bye"] = exits("bye", "work")
    run = emulate(what, tmp_path)
    mail = {"mail": "done", "tidy": "done"} if program == OK else {"mail": "failed"}
    assert states(run) == {"work": "failed"} | mail


def test_an_exit_handler_of_a_skipped_dag_does_not_run(tmp_path):
    what = spec(
        {"make": MAKE, "use": OK, "bye": OK},
        {"make": task("make"), "use": on("use", NOT), "bye": exits("bye", "use")},
        make=MAKES,
        use=READS,
    )
    run = emulate(what, tmp_path)
    assert states(run) == {"make": "done", "use": "skipped", "bye": "skipped"} and not run.failed


def test_steps_of_equal_names_in_two_dags(tmp_path):
    what = spec({"work": OK})
    within(what, "one", ["work"])
    what["root"]["dag"]["tasks"]["two"] = task("one", after=("one",))
    document = Document(what, {})
    assert document.order() == ["work", "two/work"]
    run = emulate(what, tmp_path)
    assert states(run) == {"work": "done", "two/work": "done"}
    assert {how.log.name for how in run.ended.values()} == {"work.log", "two.work.log"}
