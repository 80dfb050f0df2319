"""Argo's nodes, from the answer of the real Kubeflow Pipelines 2.17 and of the emulated ones."""

import json
import types

import kfp_server
import kfp_server_api
import pytest
from recordings import FOLDER

from stagecraft.pipeline.kubeflow.client.nodes import Node, _fnv1a, nodes, step_of
from stagecraft.pipeline.kubeflow.client.objects import Run

RECORDED = FOLDER / "runs" / "run-oom.json"


def run_of(text):
    answer = types.SimpleNamespace(data=text)
    return Run.of(kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run"))


@pytest.mark.skipif(not RECORDED.exists(), reason=f"no {RECORDED}; set STAGECRAFT_KUBEFLOW")
def test_a_run_of_the_real_backend():
    """Argo retries each node there, so that paths have the number of an attempt."""
    text = RECORDED.read_text()
    found = {node.step: node for node in nodes(run_of(text), ["Trainer", "Evaluator"])}
    assert found["Trainer"].id == "oomq-7vj7d-2696993632"
    assert found["Trainer"].pods[0] == "oomq-7vj7d-system-container-impl-2696993632"
    assert found["root-driver"].pods[0] == "oomq-7vj7d-system-dag-driver-998681833"
    assert "Trainer-driver" in found and "Evaluator" not in found, "it was never started"
    known = {
        child["pod_name"]
        for task in json.loads(text)["run_details"]["task_details"]
        for child in task.get("child_tasks", ())
    }
    assert {node.id for node in found.values()} <= known


@pytest.mark.parametrize("version", ["2.5", "2.16"])
def test_nodes_of_older_backends(create_run, version):
    with kfp_server.serving(version) as server:
        create_run(server)
        assert nodes(run_of(json.dumps(server.run().message())), ["say"]) == []
        server.run().start("say")
        found = nodes(run_of(json.dumps(server.run().message())), ["say", "after"])
    assert [node.step for node in found] == ["root-driver", "say-driver", "say"]
    assert isinstance(found[-1], Node) and server.run().pod("say") in found[-1].pods
    assert server.run().pod("say", "driver") in found[1].pods


def test_steps_in_a_dag_and_an_exit_handler():
    """The paths are those of Argo; the numbers in the IDs are hashes of them."""
    paths = {
        "Trainer": "q.root.tfx-dag.Trainer.executor",
        "Goodbye": "q.root.tfx-dag.onExit.Goodbye.executor",
    }
    children = [types.SimpleNamespace(pod_name=f"q-{_fnv1a(path)}") for path in paths.values()]
    names = ("tfx-dag", "tfx-dag-driver", "Trainer", "Goodbye")
    run = types.SimpleNamespace(
        tasks=[types.SimpleNamespace(display_name=each, child_tasks=children) for each in names]
    )
    found = {node.step: node.id for node in nodes(run, ["Trainer", "Goodbye"])}
    assert found == {name: f"q-{_fnv1a(path)}" for name, path in paths.items()}


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("q-x7k2p.root.Trainer.executor", "Trainer"),
        ("q-x7k2p(0).root(0).Trainer(1).executor(2)", "Trainer"),
        ("q-x7k2p(0).root(0).Trainer-driver(0)", "Trainer-driver"),
        ("q-x7k2p.root-driver", "root-driver"),
        ("q-x7k2p", "q-x7k2p"),
        ("executor", "executor"),
    ],
)
def test_the_step_of_a_path(path, step):
    assert step_of(path) == step
