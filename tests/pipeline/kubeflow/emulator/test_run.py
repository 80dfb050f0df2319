"""The emulated backend, with steps that are small programs of their own."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import yaml
from processes import gone, written
from two_steps import spec, task

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.emulator.run import Run
from stagecraft.pipeline.kubeflow.spec import EXIT

MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}

MAKE = """
import json, os, pathlib, sys
given = json.loads(sys.argv[1])
uri = given["outputs"]["artifacts"]["model"]["artifacts"][0]["uri"]
root = pathlib.Path(os.environ["STAGECRAFT_LAUNCHER_ROOT"])
folder = root / "minio" / uri.removeprefix("minio://")
folder.mkdir()
(folder / "file").write_text(given["inputs"]["parameterValues"].get("text", "content"))
(folder / "empty").mkdir()
written = {"artifacts": {"model": {"artifacts": [{"metadata": {"steps": 3}}]}}}
pathlib.Path(given["outputs"]["outputFile"]).write_text(json.dumps(written))
print("made")
"""

READ = """
import json, os, pathlib, sys
given = json.loads(sys.argv[1])
[model] = given["inputs"]["artifacts"]["model"]["artifacts"]
root = pathlib.Path(os.environ["STAGECRAFT_LAUNCHER_ROOT"])
folder = root / "minio" / model["uri"].removeprefix("minio://")
told = {"given": model, "files": sorted(os.listdir(folder)), "text": (folder / "file").read_text()}
pathlib.Path(given["outputs"]["parameters"]["told"]["outputFile"]).write_text(json.dumps(told))
"""


def takes(**kinds):
    """A component's input parameters."""
    return {"inputDefinitions": _parameters(kinds)}


def gives(**kinds):
    """A component's output parameters."""
    return {"outputDefinitions": _parameters(kinds)}


def _parameters(kinds):
    return {"parameters": {name: {"parameterType": kind} for name, kind in kinds.items()}}


MAKES_MODEL = {"outputDefinitions": {"artifacts": {"model": {"artifactType": MODEL}}}}


def make_and_read(**parameters):
    """A model, and the input of the next step."""
    cached = {"cachingOptions": {"enableCache": True}}
    source = {"taskOutputArtifact": {"producerTask": "make", "outputArtifactKey": "model"}}
    text = {"parameters": {"text": {"componentInputParameter": "text"}}}
    result = spec(
        {"make": MAKE, "read": READ},
        {
            "make": task("make", inputs=text if parameters else {}, **cached),
            "read": task(
                "read", after=("make",), inputs={"artifacts": {"model": source}}, **cached
            ),
        },
        make={"inputDefinitions": {"parameters": parameters}, **MAKES_MODEL},
        read={
            "inputDefinitions": {"artifacts": {"model": {"artifactType": MODEL}}},
            **gives(told="STRING"),
        },
    )
    result["root"]["inputDefinitions"] = {"parameters": parameters}
    return result


def emulate(what, folder, *, executors=None, parallel=2, **given):
    document = Document(what, executors or {})
    run = Run(document, folder, document.arguments(given))
    run.run(parallel=parallel, on_event=lambda name, state, ended: None)
    return run.ended


def refused(what, folder):
    Run(Document(what, {}), folder, {})


def states(ended):
    return {name: how.state for name, how in ended.items()}


def test_the_launchers_contract(tmp_path):
    ended = emulate(make_and_read(), tmp_path)
    assert states(ended) == {"make": "done", "read": "done"}
    assert ended["read"].outputs is not None
    told = json.loads(ended["read"].outputs["parameters"]["told"])
    assert told["text"] == "content"
    assert told["files"] == ["file"], "an object store has no empty folders"
    given = told["given"]
    assert given["type"] == {"instanceSchema": ""}
    assert given["name"] == "1"
    # What the backend adds, too.
    assert given["metadata"].items() >= {"steps": 3.0, "display_name": "model"}.items()
    run, make, salt, key = given["uri"].removeprefix("minio://bucket/base/tiny/").split("/")
    assert (make, key) == ("make", "model")
    assert (tmp_path / "store/minio/bucket/base/tiny" / run / make / salt / key / "file").exists()
    assert ended["make"].log.read_text() == "made\n"
    assert not list((tmp_path / "runs" / run / "pods").iterdir())


def test_the_cache(tmp_path):
    text = {"text": {"parameterType": "STRING", "defaultValue": "a"}}
    first = emulate(make_and_read(**text), tmp_path)
    again = emulate(make_and_read(**text), tmp_path)
    assert states(again) == {"make": "cached", "read": "cached"}
    assert again["read"].outputs == first["read"].outputs
    other = emulate(make_and_read(**text), tmp_path, text="b")
    assert states(other) == {"make": "done", "read": "done"}
    assert other["read"].outputs is not None
    assert json.loads(other["read"].outputs["parameters"]["told"])["text"] == "b"
    elsewhere = make_and_read(**text)
    elsewhere["deploymentSpec"]["executors"]["exec-make"]["container"]["image"] = "image:2"
    assert states(emulate(elsewhere, tmp_path)) == {"make": "done", "read": "done"}


def test_an_uncached_step_runs_and_what_takes_its_value_does_not(tmp_path):
    look = (
        "import json, sys\n"
        "file = json.loads(sys.argv[1])['outputs']['parameters']['seen']['outputFile']\n"
        f"open(file, 'w').write(open({str(tmp_path / 'data')!r}).read())\n"
    )
    source = {"taskOutputParameter": {"producerTask": "look", "outputParameterKey": "seen"}}
    what = spec(
        {"look": look, "use": "pass"},
        {
            "look": task("look"),
            "use": task(
                "use",
                inputs={"parameters": {"seen": source}},
                cachingOptions={"enableCache": True},
            ),
        },
        look=gives(seen="STRING"),
        use=takes(seen="STRING"),
    )
    (tmp_path / "data").write_text("one")
    assert states(emulate(what, tmp_path)) == {"look": "done", "use": "done"}
    assert states(emulate(what, tmp_path)) == {"look": "done", "use": "cached"}
    (tmp_path / "data").write_text("two")
    assert states(emulate(what, tmp_path)) == {"look": "done", "use": "done"}


def test_steps_that_do_not_wait_for_each_other_run_beside_each_other(tmp_path):
    meet = (
        "import os, sys, time\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "open(sys.argv[2], 'w').close()\n"
        "deadline = time.monotonic() + 30\n"
        "while not os.path.exists(sys.argv[3]):\n"
        "    assert time.monotonic() < deadline\n"
        "    time.sleep(0.02)\n"
    )
    what = spec({"a": meet, "b": meet})
    for name, other in (("a", "b"), ("b", "a")):
        container = what["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
        container["args"] = [name, other]
    assert states(emulate(what, tmp_path / "out")) == {"a": "done", "b": "done"}


def test_a_failed_step_stops_the_run(tmp_path):
    programs = {"fails": "print('why'); raise SystemExit(3)", "after": "pass"}
    what = spec(programs, {"fails": task("fails"), "after": task("after", after=("fails",))})
    ended = emulate(what, tmp_path)
    assert states(ended) == {"fails": "failed"}
    assert ended["fails"].log.read_text() == "why\n"


def test_another_attempt_is_another_pod_with_the_same_outputs(tmp_path):
    """The driver, which makes the salt, runs once."""
    count = f"""
import json, os, sys
given = json.loads(sys.argv[1])
uri = given["outputs"]["artifacts"]["model"]["artifacts"][0]["uri"]
with open({str(tmp_path / "attempts")!r}, "a") as file:
    file.write(f"{{os.getcwd()}} {{uri}}\\n")
with open({str(tmp_path / "attempts")!r}) as file:
    sys.exit(len(file.readlines()) < 3)
"""
    what = spec(
        {"count": count},
        {"count": task("count", retryPolicy={"maxRetryCount": 2})},
        count=MAKES_MODEL,
    )
    ended = emulate(what, tmp_path / "out")
    assert (ended["count"].state, ended["count"].attempts) == ("done", 3)
    attempts = [line.split() for line in (tmp_path / "attempts").read_text().splitlines()]
    assert len({pod for pod, _ in attempts}) == 3
    assert len({uri for _, uri in attempts}) == 1


def test_a_value_of_another_type_becomes_a_text(tmp_path):
    number = (
        "import json, sys\n"
        "given = json.loads(sys.argv[1])\n"
        "json.dump({'parameterValues': {'n': 3}}, open(given['outputs']['outputFile'], 'w'))\n"
    )
    show = "import json, sys; print(json.loads(sys.argv[1])['inputs']['parameterValues'])"
    source = {"taskOutputParameter": {"producerTask": "number", "outputParameterKey": "n"}}
    for kind, shown in (("STRING", "{'n': '3'}"), ("NUMBER_INTEGER", "{'n': 3}")):
        what = spec(
            {"number": number, "show": show},
            {"number": task("number"), "show": task("show", inputs={"parameters": {"n": source}})},
            number=gives(n="NUMBER_INTEGER"),
            show=takes(n=kind),
        )
        ended = emulate(what, tmp_path / kind)
        assert states(ended) == {"number": "done", "show": "done"}
        assert ended["show"].log.read_text() == f"{shown}\n"


def test_steps_that_wait_for_each_other(tmp_path):
    tasks = {"a": task("a", after=("b",)), "b": task("b", after=("a",))}
    with pytest.raises(UserError, match="circular"):
        refused(spec({"a": "", "b": ""}, tasks), tmp_path)
    with pytest.raises(UserError, match="circular"):
        refused(spec({"a": ""}, {"a": task("a", after=("c",))}), tmp_path)


def test_what_the_container_writes_wrong_is_a_failed_step(tmp_path):
    wrong = (
        "import json, sys\nopen(json.loads(sys.argv[1])['outputs']['outputFile'], 'w').write('{')\n"
    )
    ended = emulate(spec({"wrong": wrong}, wrong=MAKES_MODEL), tmp_path)
    assert ended["wrong"].state == "failed"
    assert ended["wrong"].cause.startswith("the launcher failed: JSONDecodeError")


def test_a_step_that_takes_too_long(tmp_path):
    what = spec({"slow": "import time; time.sleep(60)"})
    ended = emulate(what, tmp_path, executors={"exec-slow": {"activeDeadlineSeconds": "1"}})
    assert ended["slow"].seconds < 20


SLOW = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path({folder!r})
def end(number, frame):
    (folder / "asked").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
child = subprocess.Popen(["sleep", "600"])
(folder / "began").write_text(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""


def test_a_run_that_is_stopped_asks_its_steps_to_end(tmp_path):
    what = spec({"slow": SLOW.format(folder=str(tmp_path))})
    document = Document(what, {})
    run = Run(document, tmp_path / "out", {})
    thread = threading.Thread(
        target=run.run, kwargs={"parallel": 1, "on_event": lambda *event: None}
    )
    thread.start()
    pids = [int(pid) for pid in written(tmp_path / "began").split()]
    run.stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert states(run.ended) == {"slow": "interrupted"}
    assert (tmp_path / "asked").exists()
    assert gone(*pids)


def test_nothing_is_left_of_a_launcher_that_was_killed(tmp_path):
    what = spec({"slow": SLOW.format(folder=str(tmp_path))})
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(what))
    code = (
        "import pathlib, sys\n"
        "from stagecraft.pipeline.kubeflow.document import load\n"
        "from stagecraft.pipeline.kubeflow.emulator.run import Run\n"
        f"document = load(pathlib.Path({str(tmp_path / 'slow.yaml')!r}))\n"
        f"run = Run(document, pathlib.Path({str(tmp_path / 'out')!r}), {{}})\n"
        "run.run(parallel=1, on_event=print)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    try:
        pids = [int(pid) for pid in written(tmp_path / "began").split()]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert gone(*pids)


def test_what_is_not_emulated_is_said(tmp_path):
    what = make_and_read()
    what["root"]["dag"]["tasks"]["read"]["parameterIterator"] = {"itemInput": "x"}
    with pytest.raises(UserError) as caught:
        refused(what, tmp_path)
    assert caught.value.record == "read"
    what = make_and_read()
    what["deploymentSpec"]["executors"]["exec-make"] = {"resolver": {}}
    with pytest.raises(UserError, match="resolver"):
        refused(what, tmp_path)


@pytest.mark.parametrize(
    ("name", "policy"), [("make", {"condition": "true"}), ("read", {"strategy": EXIT})]
)
def test_an_importer_has_no_driver_for_conditions_and_exit_handlers(tmp_path, name, policy):
    what = make_and_read()
    what["deploymentSpec"]["executors"]["exec-make"] = {"importer": {}}
    task = what["root"]["dag"]["tasks"][name]
    task["triggerPolicy"] = policy
    with pytest.raises(UserError) as caught:
        refused(what, tmp_path)
    assert caught.value.record == name
