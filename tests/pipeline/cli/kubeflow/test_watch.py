"""``stagecraft kubeflow runs watch``, and ``runs create --watch``."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml
from kfp_server import end, finish, start, whole
from recordings import FOLDER

pytestmark = pytest.mark.usefixtures("uploaded")


def steps(told):
    return {name: step["state"] for name, step in told["steps"].items()}


def test_success(server, ask, told):
    server.play(*whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    begun = lines.index("say: running")
    assert lines[begun + 1].startswith("say: done, ")
    assert lines[begun + 2] == "after: running"
    assert lines[begun + 3].startswith("after: done, ")
    assert lines[begun + 4].split() == ["state", "SUCCEEDED"]
    assert not any("watch it" in line for line in lines)
    made = told("runs", "create", "tiny", "--watch")
    assert (made["state"], steps(made)) == ("SUCCEEDED", {"say": "done", "after": "done"})
    told_again = told("runs", "watch", made["id"])
    assert told_again == made


def test_failure_names_the_step_and_its_log(server, ask, told):
    server.play(start("say"), finish("say", "FAILED"), end("FAILED"))
    done = ask("runs", "create", "tiny", "--watch")
    run = server.run().id
    assert done.exit_code == 1
    assert "say: failed" in done.stdout and "state  FAILED" in done.stdout
    assert "Error: say: failed" in done.stderr
    assert f"runs logs {run} --step say" in done.stderr
    assert done.stderr.count("its log") == 1
    made = told("runs", "watch", run, code=1)
    assert steps(made) == {"say": "failed", "after": "skipped"}


def nothing(run):
    """At one poll."""


REASON = 'ImagePullBackOff: Back-off pulling image "stagecraft:latest"'


def manifest(name, node, *, image="stagecraft:latest", memory=None, **status):
    """A pod as Kubernetes has it."""
    limits = {"resources": {"limits": {"memory": memory}}} if memory else {}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-25T23:02:07.000Z",
            "annotations": {"workflows.argoproj.io/node-name": f"tiny-x7k2p.{node}"},
        },
        "spec": {"containers": [{"name": "wait"}, {"name": "main", "image": image, **limits}]},
        "status": status,
    }


def add_pod(cluster, run, **more):
    """The pod of the first step, in the cluster."""
    pod = manifest("p1", "root.say.executor", **more)
    pod["metadata"]["labels"] = {"pipeline/runid": run.id}
    del pod["metadata"]["uid"]
    cluster.add("pods", "p1", **pod)


def state(kind, reason, message=None, **more):
    """A container's state in the status of a pod."""
    fields = {"reason": reason, **({"message": message} if message else {}), **more}
    return {"containerStatuses": [{"name": "main", "state": {kind: fields}}]}


@pytest.fixture
def impatient(monkeypatch):
    """A minute is over at once."""
    from stagecraft.pipeline.kubeflow.client import diagnosis

    monkeypatch.setattr(diagnosis, "WITHOUT_CONTAINER_SECONDS", 0.0)
    monkeypatch.setattr(diagnosis, "_LOOK_SECONDS", 0.0)


@pytest.fixture(params=["cluster", "ui", "v1"])
def hanging(request, server):
    """A run whose first pod waits for its image, and how that can be known."""

    def hang(run):
        run.start("say", "PENDING")
        reason, _, message = REASON.partition(": ")
        status = {"phase": "Pending", **state("waiting", reason, message)}
        if request.param == "cluster":
            add_pod(request.getfixturevalue("cluster"), run, **status)
        elif request.param == "ui":
            server.serves_ui = True
            server.pods[run.pod("say")] = manifest("p1", "root.say.executor", **status)
        else:
            run.workflow.nodes["root.say.executor"].message = REASON

    if request.param == "cluster":
        request.getfixturevalue("cluster")
    return hang


@pytest.mark.usefixtures("impatient")
def test_a_step_whose_image_cannot_be_pulled(server, ask, hanging):
    """The command says why and what to do, once, and goes on watching."""
    server.play(hanging, nothing, nothing, nothing, *whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 0, done.output
    [line] = done.stderr.splitlines()
    assert line.startswith("say: ") and REASON in line and "kubeflow.image" in line


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (state("waiting", "CreateContainerConfigError", 'secret "keys" not found'), "the Secret"),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                    | {"message": "0/1 nodes are available: 1 Insufficient memory."}
                ]
            },
            "kubeflow.steps.say",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                    | {"message": 'persistentvolumeclaim "training" not found'}
                ]
            },
            "kubeflow.steps.say.volumes",
        ),
        (state("waiting", "ContainerCreating"), "kubectl -n kubeflow describe pod p1"),
        (state("waiting", "ErrImageNeverPull"), "kubeflow.image"),
        (
            state("waiting", "ErrImagePull", "ghcr.io/kubeflow/kfp-launcher:2.17.0: no route"),
            "part of Kubeflow Pipelines",
        ),
        (state("waiting", "InvalidImageName", "couldn't parse image"), "kubeflow.image"),
    ],
)
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_other_reasons_not_to_start(server, ask, status, advice):
    def hang(run):
        run.start("say", "PENDING")
        pod = manifest("p1", "root.say.executor", phase="Pending", **status)
        server.serves_ui, server.pods[run.pod("say")] = True, pod

    server.play(hang, nothing, nothing, *whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    [line] = done.stderr.splitlines()
    assert done.exit_code == 0 and line.startswith("say: ") and advice in line


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_a_volume_that_cannot_be_mounted(server, cluster, ask):
    """The container waits as usual; only the cluster's events say why."""

    def hang(run):
        run.start("say", "PENDING")
        add_pod(cluster, run, phase="Pending", **state("waiting", "ContainerCreating"))
        cluster.add(
            "events",
            "p1.1",
            type="Warning",
            reason="FailedMount",
            message='MountVolume.SetUp failed for volume "claim-0"',
            involvedObject={"kind": "Pod", "name": "p1"},
        )

    server.play(hang, nothing, nothing, *whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    [line] = done.stderr.splitlines()
    assert "FailedMount" in line and "steps.say.volumes" in line


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_nobody_starts_the_run_or_can_say_why(server, ask):
    server.has_v1 = False
    hang = start("say", "PENDING")
    server.play(nothing, nothing, hang, nothing, nothing, *whole("say", "after"))
    done = ask("runs", "create", "tiny", "--name", "mine", "--watch")
    controller, cluster = done.stderr.splitlines()
    assert "workflow-controller" in controller and "--kube-context" in cluster


@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_a_minute(server, ask):
    """The pods are looked at after a minute, and then every 15 seconds."""
    from stagecraft.pipeline.kubeflow.client import runs
    from stagecraft.pipeline.kubeflow.client.api import Api
    from stagecraft.pipeline.kubeflow.client.connection import resolve
    from stagecraft.pipeline.kubeflow.client.diagnosis import IdleSteps

    ask("runs", "create", "tiny")
    run, reports = server.run(), []
    api, now = Api(resolve({"endpoint": server.url})), [1000.0]
    idle = IdleSteps(api, ["say", "after"], lambda *report: reports.append(report), lambda: now[0])

    def looks(seconds):
        now[0], before = now[0] + seconds, len(server.requests)
        idle.check(runs.get(api, run.id))
        return any(each.path.startswith("/k8s/") for each in server.requests[before:])

    run.start("say", "PENDING")
    server.serves_ui = True
    pod = manifest("p1", "root.say.executor", phase="Pending", **state("waiting", "ErrImagePull"))
    server.pods[run.pod("say")] = pod
    assert [looks(0), looks(59)] == [False, False]
    assert [looks(2), looks(2), looks(14)] == [True, False, True]
    assert [name for name, _ in reports] == ["say"]
    run.start("say")
    assert not looks(60)
    run.finish("say")
    run.start("after", "PENDING")
    assert [looks(2), looks(58), looks(3)] == [False, False, True]
    assert len(reports) == 1


def test_a_container_that_runs_is_not_asked_about(server, ask):
    """Nor is one that waits for less than a minute."""
    server.play(start("say", "PENDING"), nothing, start("say"), *whole("say", "after"))
    done = ask("runs", "create", "tiny", "--watch")
    assert (done.exit_code, done.stderr) == (0, "")
    assert not [each for each in server.requests if "/k8s/" in each.path or "v1beta1" in each.path]


def test_a_driver_that_failed_has_a_last_line(server, ask, told):
    last = "F1125 22:58:53.1 main.go:85] KFP driver: no such artifact"

    def fail(run):
        run.resolve("say", "FAILED")
        server.logs[run.pod("say", "driver")] = f"I1125 22:58:52.0 main.go:70] start\n{last}\n\n"

    server.play(fail, end("FAILED"))
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 1 and f"its driver failed: {last}" in done.stderr
    run = server.run()
    assert told("runs", "show", run.id)["steps"]["say"]["cause"].endswith(last)
    server.logs.clear()
    assert told("runs", "show", run.id)["steps"]["say"]["cause"] == "its driver failed"


KILLED = "I1125 23:02:26.1 launcher.go:1] training\nF1125 23:02:27.0 main.go:60] signal: killed\n"


@pytest.mark.parametrize(
    ("known_by", "limits", "shown"),
    [
        ("pod", {}, "450Mi"),
        ("message", {"resourceMemoryLimit": "450Mi", "memoryLimit": 0.4718592}, "450Mi"),
        ("log", {"resourceMemoryLimit": "450Mi"}, "450Mi"),
        ("log", {"memoryLimit": 4.0}, "4G"),
        ("log", {}, None),
        ("nothing", {"memoryLimit": 4.0}, None),
    ],
)
@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_a_step_over_its_memory_limit(server, cluster, ask, told, write, known_by, limits, shown):
    path = write("limited.yaml", name="limited")
    document = yaml.safe_load(path.read_text())
    document["deploymentSpec"]["executors"]["exec-say"]["container"]["resources"] = limits
    path.write_text(yaml.safe_dump(document))
    assert ask("pipelines", "create", path).exit_code == 0

    def fail(run):
        run.finish("say", "FAILED")
        if known_by == "pod":
            ended = state("terminated", "OOMKilled", exitCode=137)
            add_pod(cluster, run, memory="450Mi", phase="Failed", **ended)
        elif known_by == "message":
            run.workflow.nodes["root.say.executor"].message = "OOMKilled (exit code 137)"
        elif known_by == "log":
            server.logs[run.pod("say")] = KILLED

    server.play(start("say"), fail, end("FAILED"))
    done = ask("runs", "create", "limited", "--watch")
    assert done.exit_code == 1
    cause = told("runs", "show", server.run().id)["steps"]["say"]["cause"]
    if known_by == "nothing":
        assert cause is None
        return
    assert cause in done.stderr and "steps.say.memory" in cause
    assert shown is None or shown in cause


RECORDED = FOLDER / "runs" / "run-oom.json"


@pytest.mark.skipif(not RECORDED.exists(), reason=f"no {RECORDED}; set STAGECRAFT_KUBEFLOW")
@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_the_run_of_the_real_backend_whose_trainer_was_killed(server, ask, told):
    """The API says only that it failed; its log is that of the pod."""
    text, pod = RECORDED.read_text(), "oomq-7vj7d-system-container-impl-2696993632"
    run = json.loads(text)["run_id"]
    for path, body, kind in (
        (f"/v2beta1/runs/{run}$", text, "application/json"),
        (f"/nodes/{pod}/log$", KILLED, "text/plain"),
    ):
        server.fail("GET", path, status=200, body=body, content_type=kind, times=None)
    steps = told("runs", "watch", run, code=1)["steps"]
    failed = {name: step["cause"] for name, step in steps.items() if step["state"] == "failed"}
    assert failed.keys() == {"Trainer"} and "steps.Trainer.memory" in failed["Trainer"]
    assert ask("runs", "logs", run, "--step", "Trainer").stdout == KILLED


def test_cached_and_skipped_steps(server, ask):
    server.play(finish("say", cached=True), finish("after", "SKIPPED"), end())
    done = ask("runs", "create", "tiny", "--watch")
    assert done.exit_code == 0, done.output
    assert "say: cached" in done.stdout and "after: skipped" in done.stdout
    assert "running" not in done.stdout


def test_attach_in_the_middle(server, ask, told):
    run = told("runs", "create", "tiny")["id"]
    server.run().start("say")
    server.run().finish("say")
    server.run().start("after")
    server.run().play(start("after"), finish("after"), end())
    done = ask("runs", "watch", run)
    assert done.exit_code == 0, done.output
    states = [line.split(",")[0] for line in done.stdout.splitlines()[:3]]
    assert states == ["say: done", "after: running", "after: done"]


@pytest.mark.parametrize("kind", ["503", "429", "drop", "html"])
def test_hiccups_of_the_server(server, ask, told, kind):
    run = told("runs", "create", "tiny")["id"]

    def hiccup(run):
        path = "/runs/"
        if kind == "drop":
            server.drop(path, times=2)
        elif kind == "html":
            body = "<html>502 Bad Gateway</html>"
            server.fail("GET", path, status=502, body=body, content_type="text/html", times=2)
        else:
            server.fail("GET", path, status=int(kind), body="upstream is away", times=2)

    server.run().play(start("say"), hiccup, *whole("say", "after")[1:])
    done = ask("runs", "watch", run)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("Trying again.") == 2
    assert done.stdout.count("say: running") == done.stdout.count("say: done") == 1
    quiet = ask("runs", "watch", run, "--json")
    assert quiet.stdout.count("\n") == 1


def test_a_hiccup_at_the_very_beginning(server, ask, told):
    server.play(*whole("say", "after"))
    run = told("runs", "create", "tiny")["id"]
    server.drop("/runs/", times=1)
    assert ask("runs", "watch", run).exit_code == 0


def test_patience_has_an_end(server, ask, told, monkeypatch):
    from stagecraft.pipeline.kubeflow.client import runs

    run = told("runs", "create", "tiny")["id"]
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", 0.05)
    server.fail("GET", "/runs/", status=503, body="away", times=None)
    done = ask("runs", "watch", run)
    assert done.exit_code == 1 and "503: away." in done.stderr


def test_a_run_that_is_deleted_meanwhile(server, ask, told):
    run = told("runs", "create", "tiny")["id"]
    server.run().play(start("say"), lambda run: server.runs.clear())
    done = ask("runs", "watch", run)
    assert done.exit_code == 1 and f"{run}: " in done.stderr


def test_a_step_that_was_stopped_did_not_fail(server, ask, told):
    """Argo calls its pod failed."""
    run = told("runs", "create", "tiny", "--name", "mine")["id"]
    stop = [start("say"), lambda run: (run.terminate(), run.begin())]
    server.run().play(*stop, finish("say", "FAILED"), end("FAILED"))
    done = ask("runs", "watch", run)
    assert done.exit_code == 1
    assert "say: interrupted" in done.stdout and "runs logs" not in done.stderr
    assert "it was stopped" in done.stderr
    assert sum(line.startswith("state") for line in done.stdout.splitlines()) == 1
    assert steps(told("runs", "show", run))["say"] == "interrupted"


def test_interrupted(server, ask, told):
    run = told("runs", "create", "tiny")["id"]

    def interrupt(run):
        os.kill(os.getpid(), signal.SIGINT)

    server.run().play(start("say"), interrupt, finish("say"), *whole("after"))
    done = ask("runs", "watch", run)
    assert done.exit_code == 130
    assert "Traceback" not in done.output
    assert not any(request.path.endswith(":terminate") for request in server.requests)
    assert ask("runs", "watch", run).exit_code == 0


@pytest.mark.parametrize("server", ["2.16"], indirect=True)
def test_a_real_process(server, told):
    """What it prints, from the first import to Ctrl-C."""
    run = told("runs", "create", "tiny")["id"]
    server.run().start("say")
    main = "from stagecraft.pipeline.cli.main import main; main()"
    words = ["kubeflow", "runs", "watch", run, "--endpoint", server.url]
    process = subprocess.Popen(
        [sys.executable, "-c", main, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "say: running\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        said = process.stderr.read()
        assert said.endswith(f"runs watch {run}\n")
    assert server.run().state == "RUNNING"
