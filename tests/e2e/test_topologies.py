"""The whole pipeline under each strategy and runner, and with Transform materialised.

All in one output folder: what the data steps gave is in the cache after the first. Each with a seed
of its own: else a topology would go on from another one's checkpoints, and find everything done.
"""

import itertools

import pytest
from support import TINY, run
from tensorflow.core.protobuf import saved_model_pb2

GRID = (
    *("parallel.strategy=grid", "parallel.stages=2"),
    *("parallel.microbatches=2", "parallel.virtual_devices=4"),
)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("topologies") / "out"


SEEDS = itertools.count(1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            (
                *("parallel.strategy=mirrored", "parallel.replicas=2"),
                *("parallel.virtual_devices=2", "transform.materialize=true"),
                *("train.ema_decay=0.9", "train.augment=cutout"),
            ),
            ("--runner", "beam"),
            id="mirrored-beam-materialized-ema",
            marks=pytest.mark.full,  # tests/pipeline/local has Beam's runner
        ),
        pytest.param(
            (*GRID, "parallel.precision=mixed_float16", "train.clip_norm=1"),
            (),
            id="grid-mixed_float16",
            marks=pytest.mark.full,  # a CPU takes a minute and a half over its 16 bits
        ),
        pytest.param(
            (*GRID, "parallel.workers=2", "parallel.evaluator=true"),
            (),
            id="grid-workers-evaluator",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("parallel.strategy=parameter_server", "parallel.workers=2"),
            (),
            id="parameter_server",
            marks=pytest.mark.full,  # tests/components/kubernetes has one, too
        ),
    ],
)
def test_ends_pushed(output, settings, words):
    before = set(output.glob("serving/*"))
    own = (f"train.seed={next(SEEDS)}", "evaluate.not_worse=false")
    done = run(output, *words, settings=(*TINY, *own, *settings))
    assert set(done.states.values()) <= {"done", "cached"}
    assert done.executed() >= {"Trainer", "Evaluator", "Pusher"}
    assert done.result["blessed"] and done.result["pushed"]
    assert done.result["examples"] == {"train": 360, "val": 40, "eval": 100}
    (pushed,) = set(output.glob("serving/*")) - before
    model = saved_model_pb2.SavedModel.FromString((pushed / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    # Saving and restoring are the host's.
    assert {node.device for node in (*graph.node, *functions)} <= {
        "",
        "*",
        "/device:CPU:*",
        "/device:CPU:0",
    }
