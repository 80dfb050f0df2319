"""``stagecraft kubeflow runs logs``: two servers, Kubeflow Pipelines' and the cluster's.

Tests without ``cluster`` have no configuration of kubectl.
"""

import json

import pytest
from kfp_server import end
from kube_api import KubeApi


def nothing(run):
    """At one poll. The first is the command's own; then it looks for pods after each."""


NODE = "workflows.argoproj.io/node-name"


@pytest.fixture
def run(server, ask, uploaded):
    assert ask("runs", "create", "tiny").exit_code == 0
    return server.run()


@pytest.fixture
def add_pod(cluster, run):
    def add_pod(name, node, *lines, **more):
        """A pod of the run; its log has these lines."""
        labels = {"pipeline/runid": run.id}
        annotations = {NODE: f"tiny-x7k2p.{node}"}
        more = {"containers": ("wait", "main"), "annotations": annotations, **more}
        cluster.add_pod(name, labels, **more)
        for line in lines:
            cluster.log(name, line, "main")

    return add_pod


@pytest.fixture
def two_steps(cluster, add_pod):
    """Also with drivers, whose logs are of no interest, and with somebody else's pod."""
    add_pod("d1", "root-driver", "driving")
    add_pod("d2", "root.say-driver", "driving")
    add_pod("p1", "root.say.executor", "hello", "", "  world ", "ünï")
    add_pod("p2", "root.after.executor(0)", "bye")
    for name in ("d1", "d2", "p1", "p2"):
        cluster.finish(name)
    cluster.add_pod("foreign", {"pipeline/runid": "other"})


TEXT = "hello\n\n  world \nünï\n"


@pytest.fixture
def started(server, run):
    """The first step of two has begun, and its pod has printed."""
    run.start("say")
    server.logs[run.pod("say")] = TEXT
    return run


def test_kubeflow_pipelines_serves_the_log_of_a_pod(server, ask, started):
    done = ask("runs", "logs", started.id)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "say | hello\nsay | \nsay |   world \nsay | ünï\n"
    assert ask("runs", "logs", started.id, "--step", "say").stdout == TEXT
    assert ask("runs", "logs", started.id, "--step", "say", "--tail", 1).stdout == "ünï\n"
    assert ask("runs", "logs", started.id, "--tail", 0).exit_code == 0


def test_the_user_interface_serves_it_too(server, ask, started):
    """A port that is forwarded to ml-pipeline-ui is the usual endpoint."""
    server.serves_ui = True
    assert ask("runs", "logs", started.id, "--step", "say").stdout == TEXT
    asked = [each for each in server.requests if each.path == "/k8s/pod/logs"][-1]
    assert asked.query == {
        "podname": started.pod("say"),
        "podnamespace": "kubeflow",
        "runid": started.id,
    }


@pytest.mark.parametrize("template", ["retry-system-container-impl", ""])
def test_pods_of_other_names(server, ask, started, template):
    """Of a step with retries, and of an Argo that names pods after nodes."""
    number = started.pod("say").rpartition("-")[2]
    [text] = server.logs.values()
    name = "-".join(filter(None, (started.workflow.name, template, number)))
    server.logs = {name: text}
    assert ask("runs", "logs", started.id, "--step", "say").stdout == TEXT


@pytest.mark.parametrize("is_json", [False, True])
def test_a_log_in_the_archive(server, ask, started, is_json):
    """Kubernetes has deleted the pod. A step may print what looks like an answer of the server."""
    text = '{"error_message": "x"}' if is_json else TEXT
    server.logs.clear()
    server.archive[started.workflow.nodes["root.say.executor"].id] = text
    done = ask("runs", "logs", started.id, "--step", "say")
    assert (done.exit_code, done.stdout.rstrip("\n")) == (0, text.rstrip("\n"))


def test_no_log_and_no_cluster(server, ask, started):
    server.logs.clear()
    done = ask("runs", "logs", started.id)
    assert (done.exit_code, done.stdout) == (1, "") and "KUBECONFIG" in done.stderr


def test_a_server_that_fails_is_no_missing_log(server, ask, started):
    server.fail("GET", "/log$", status=503, body="upstream is away")
    done = ask("runs", "logs", started.id)
    assert done.exit_code == 1 and "upstream is away" in done.stderr


def test_follow_without_a_cluster(server, ask, started):
    """Each poll reads the whole log; a line that has no end yet comes later, and none twice."""
    pod = started.pod("say")

    def write(text):
        def step(run):
            server.logs[pod] = text

        return step

    def away(run):
        server.fail("GET", "/log$", status=503, body="upstream is away")

    def last(run):
        run.finish("say")
        run.start("after")
        server.logs[run.pod("after")] = "bye"
        server.logs[pod] = "1\nsame\nsame\n3\n"

    write("1\nsa")(started)
    started.play(nothing, write("1\nsame\nsame\n"), away, nothing, last, end())
    done = ask("runs", "logs", started.id, "--follow")
    assert done.exit_code == 0, done.output
    expected = ["say | 1", "say | same", "say | same", "say | 3", "after | bye"]
    assert done.stdout.splitlines() == expected
    assert done.stderr.count("Trying again.") == 1


def test_follow_a_log_that_begins_anew(server, ask, started):
    """The kubelet starts another file at 10 MB, and shows only the newest one."""

    def rotated(run):
        server.logs[run.pod("say")] = "new\n"

    started.play(nothing, nothing, rotated, nothing, end())
    done = ask("runs", "logs", started.id, "--follow", "--step", "say")
    assert done.stdout == f"{TEXT}new\n"


def test_a_log_that_may_not_be_read(server, ask, started):
    """Newer servers ask for a permission of its own."""
    server.logs.clear()
    server.fail("GET", "/log$", status=403, body="cannot readLog runs", times=None)
    done = ask("runs", "logs", started.id, "--step", "say")
    assert done.exit_code == 1 and "cannot readLog runs" in done.stderr


def test_follow_where_the_cluster_refuses(server, cluster, ask, started):
    cluster.forbid("list", "pods")
    started.play(nothing, nothing, end())
    assert ask("runs", "logs", started.id, "-f", "--step", "say").stdout == TEXT


def test_follow_where_kubectl_means_another_cluster(server, cluster, ask, started):
    started.play(nothing, nothing, end())
    assert ask("runs", "logs", started.id, "-f", "--step", "say").stdout == TEXT


def test_a_driver_that_failed_without_a_cluster(server, ask, run):
    run.resolve("say", "FAILED")
    server.logs[run.pod("say", "driver")] = "KFP driver: no such artifact\n"
    expected = "KFP driver: no such artifact\n"
    assert ask("runs", "logs", run.id, "--step", "say").stdout == expected
    assert ask("runs", "logs", run.id).stdout == f"say-driver | {expected}"


@pytest.mark.usefixtures("two_steps")
def test_all_steps_have_their_names_in_front(ask, run):
    done = ask("runs", "logs", run.id)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "say | hello",
        "say | ",
        "say |   world ",
        "say | ünï",
        "after | bye",
    ]


@pytest.mark.usefixtures("two_steps")
def test_one_step(ask, refused, run):
    assert ask("runs", "logs", run.id, "--step", "say").stdout == "hello\n\n  world \nünï\n"
    assert ask("runs", "logs", run.id, "--step", "say", "--tail", 1).stdout == "ünï\n"
    assert ask("runs", "logs", run.id, "--step", "say-driver").stdout == "driving\n"
    done = ask("runs", "logs", run.id, "--step", "say", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"step": "say", "line": "hello"} and len(lines) == 4
    assert "Say" in refused("runs", "logs", run.id, "--step", "Say")


@pytest.mark.usefixtures("two_steps")
def test_what_is_over_can_be_followed(ask, run):
    run.end()
    plain = ask("runs", "logs", run.id).stdout.splitlines()
    assert sorted(ask("runs", "logs", run.id, "-f").stdout.splitlines()) == sorted(plain)
    assert ask("runs", "logs", run.id, "-f", "--step", "after").stdout == "bye\n"


def test_follow_until_it_is_over_with_a_pod_that_comes_later(cluster, ask, run, add_pod):
    def later(run):
        add_pod("p2", "root.after.executor", "one", waiting=None)

    def last(run):
        cluster.wait_for("pods/p2/log", timeout=5)
        cluster.log("p2", "two", "main")
        cluster.finish("p2")
        run.end()

    add_pod("p1", "root.say.executor", waiting="ContainerCreating")
    run.play(
        nothing,
        nothing,
        lambda run: cluster.wait_for("pods/p1/log", timeout=5),
        lambda run: cluster.start("p1") and None,
        lambda run: cluster.log("p1", "hello", "main"),
        lambda run: cluster.finish("p1") and None,
        later,
        nothing,
        last,
    )

    done = ask("runs", "logs", run.id, "--follow")
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.splitlines()) == ["after | one", "after | two", "say | hello"]
    assert done.stderr == ""


def test_a_connection_that_hangs_up_in_the_middle(cluster, ask, run, add_pod):
    """No line is lost, and none comes twice; also not of those that say the same."""
    add_pod("p1", "root.say.executor", "1", "same")

    def broken(run):
        cluster.wait_for("pods/p1/log", timeout=5)
        cluster.log("p1", "same", "main")
        cluster.hang_up()
        cluster.log("p1", "3", "main")

    def again(run):
        cluster.wait_for("pods/p1/log", 2, timeout=5)
        cluster.hang_up()
        cluster.wait_for("pods/p1/log", 3, timeout=5)
        cluster.log("p1", "4", "main")
        cluster.finish("p1")

    run.play(nothing, nothing, broken, again, end())
    done = ask("runs", "logs", run.id, "--follow", "--step", "say")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["1", "same", "same", "3", "4"]


def test_servers_fail_in_the_middle(server, cluster, ask, run, add_pod):
    add_pod("p1", "root.say.executor", "hello")

    def fail(run):
        cluster.wait_for("pods/p1/log", timeout=5)
        cluster.fail("GET", "/pods$", 500, "InternalError", "etcd is away")
        cluster.fail("GET", "/log$", 500, "InternalError", "kubelet is away")
        cluster.hang_up()
        server.fail("GET", "/runs/", status=503, body="upstream is away")

    def last(run):
        cluster.wait_for("pods/p1/log", 3, timeout=5)
        cluster.log("p1", "bye", "main")
        cluster.finish("p1")
        run.end()

    run.play(nothing, nothing, fail, last)
    done = ask("runs", "logs", run.id, "-f", "--step", "say")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["hello", "bye"]
    assert "etcd is away" in done.stderr and "upstream is away" in done.stderr
    assert done.stderr.count("Trying again.") == 2


def test_a_pod_that_waits(cluster, ask, run, add_pod):
    add_pod("p1", "root.say.executor", waiting="ImagePullBackOff")
    done = ask("runs", "logs", run.id)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("say: ImagePullBackOff")
    assert '"main"' in done.stderr and '"p1"' in done.stderr
    cluster.wait_for("log")
    run.play(lambda run: None, lambda run: None, end("FAILED"))
    done = ask("runs", "logs", run.id, "--follow")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "say: ImagePullBackOff\n"  # told once


def test_a_driver_that_failed(cluster, ask, run, add_pod):
    told = "KFP driver: no such artifact"
    add_pod("d1", "root.say-driver", told)
    cluster.finish("d1", "Failed", 1)
    assert ask("runs", "logs", run.id, "--step", "say").stdout == f"{told}\n"
    assert ask("runs", "logs", run.id).stdout == f"say-driver | {told}\n"


def test_no_pods(cluster, refused, run):
    assert "--namespace" in refused("runs", "logs", run.id)
    run.end()
    assert "--namespace" in refused("runs", "logs", run.id, "--follow")
    assert "--namespace" in refused("runs", "logs", run.id, "-n", "elsewhere")
    assert "see" in refused("runs", "logs", "none")


@pytest.mark.usefixtures("two_steps")
@pytest.mark.parametrize("follow", [(), ("--follow",)])
@pytest.mark.parametrize(("verb", "resource"), [("list", "pods"), ("get", "pods/log")])
def test_forbidden(cluster, ask, run, verb, resource, follow):
    cluster.forbid(verb, resource)
    run.play(nothing, nothing, end())
    done = ask("runs", "logs", run.id, *follow)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f'User "ci@example.com" cannot {verb} resource "{resource}"' in done.stderr
    assert "manifests/base/logs-access.yaml" in done.stderr


def test_unknown_to_the_cluster(cluster, home, ask, run):
    cluster.kubeconfig(home / "kubeconfig", token="expired-token")
    done = ask("runs", "logs", run.id)
    assert done.exit_code == 1 and "Unauthorized" in done.stderr
    assert "expired-token" not in done.output


@pytest.mark.parametrize("text", [None, "", "{", "apiVersion: v1", "- 1", "\x00"])
def test_no_cluster(home, ask, run, text):
    if text is not None:
        (home / "kubeconfig").write_text(text)
    done = ask("runs", "logs", run.id)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "KUBECONFIG" in done.stderr


def test_a_cluster_that_does_not_answer(home, ask, run):
    nobody = KubeApi("kubeflow")
    nobody.url = "http://127.0.0.1:1"
    nobody.kubeconfig(home / "kubeconfig")
    done = ask("runs", "logs", run.id)
    assert done.exit_code == 1 and "namespace kubeflow" in done.stderr
    other = ask("runs", "logs", run.id, "--kube-context", "none")
    assert other.exit_code == 1 and "No Kubernetes cluster" in other.stderr


def test_lines_cannot_drive_the_terminal(ask, run, add_pod):
    line = "\x1b[2J\x1b]0;title\x07epoch 1\x08 of https://me:c4n4ry@host"
    add_pod("p1", "root.say.executor", line)
    told = "epoch 1 of https://…@host"
    assert ask("runs", "logs", run.id).stdout == f"say | {told}\n"
    done = ask("runs", "logs", run.id, "--json")
    assert json.loads(done.stdout) == {"step": "say", "line": told}
