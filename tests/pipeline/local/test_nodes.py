import pytest

from stagecraft.common.errors import UserError
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.settings import load


def test_they_are_the_pipelines_own_in_its_order(tmp_path):
    from tfx.dsl.compiler.compiler import Compiler

    from stagecraft.pipeline.pipeline import create_pipeline

    compiled = Compiler().compile(create_pipeline(load("quickstart"), tmp_path))
    assert tuple(node.pipeline_node.node_info.id for node in compiled.nodes) == nodes.by_default()


@pytest.mark.parametrize(
    ("from_node", "to_node", "runs"),
    [
        (None, None, True),
        ("Trainer", "Trainer", True),
        ("AnomalyGate", None, True),
        (None, "Transform", False),
        ("Evaluator", None, False),
    ],
)
def test_a_node_between_others(from_node, to_node, runs):
    assert nodes.between("Trainer", nodes.by_default(), from_node, to_node) == runs
    assert not nodes.between("Trainer", ("Cifar10ExampleGen",))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("Trainr", "Trainer"), ("trainer", "Trainer"), ("ExampleGen", "Cifar10ExampleGen"), ("x", "")],
)
def test_an_unknown_name(name, suggestion):
    with pytest.raises(UserError) as caught:
        nodes.check([name], nodes.by_default())
    assert (caught.value.value, caught.value.suggestion) == (name, suggestion)


def test_a_pipeline_without_a_report_ends_with_the_pusher(tmp_path):
    from stagecraft.pipeline.pipeline import create_pipeline

    settings = load("quickstart", ("report.enabled=false", "parity.enabled=true"))
    ids = [node.id for node in create_pipeline(settings, tmp_path).components]
    assert sorted(ids) == sorted(nodes.of(settings))
    assert "ParityGate" in ids and nodes.of(settings)[-1] == "Pusher"
