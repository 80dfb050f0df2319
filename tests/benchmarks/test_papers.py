"""The papers' networks and tables that ``planner_papers`` predicts."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys

import keras
import pytest
from processes import ran

from stagecraft.trainer_module.models import costs, model_graph
from stagecraft.trainer_module.planning import (
    collective_costs,
    cost_model,
    device_times,
    range_costs,
)
from stagecraft.trainer_module.planning.accelerators import ACCELERATORS
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLANNING = ROOT / "benchmarks" / "planning"
PAGE = ROOT / "docs" / "reference" / "planner-accuracy.md"


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(PLANNING))
    yield
    sys.path.remove(str(PLANNING))


def parameters(name: str, **sizes: int) -> int:
    from papers import published

    return sum(cost.parameters for cost in published.NETWORKS[name](**sizes))


@pytest.mark.parametrize(
    ("filters", "millions"),
    # torchgpipe, docs/benchmarks.rst, "AmoebaNet-D (L, D) Memory Benchmark"
    [(208, 81.5), (416, 319.0), (544, 542.7)],
)
def test_amoebanet_has_the_parameters_that_torchgpipe_counts(filters, millions):
    assert parameters("amoebanet_d", filters=filters) / 1e6 == pytest.approx(millions, abs=0.3)


@pytest.mark.parametrize(
    ("convolutions", "channels", "millions"),
    # the same page, "U-Net (B, C) Memory Benchmark"
    [(6, 72, 362.2), (11, 128, 2_210), (24, 128, 4_990), (24, 160, 7_800)],
)
def test_u_net_has_the_parameters_that_torchgpipe_counts(convolutions, channels, millions):
    found = parameters("unet", convolutions=convolutions, channels=channels)
    assert found / 1e6 == pytest.approx(millions, rel=3e-3)


def test_resnets_have_the_parameters_of_torchvision():
    assert parameters("resnet", blocks=[3, 4, 23, 3]) == 44_549_160
    assert parameters("resnet", blocks=[3, 4, 6, 3]) == 25_557_032


@pytest.mark.parametrize(
    ("layers", "millions"),
    # GPipe, table 1
    [(3, 282.2), (13, 785.8), (103, 5_300)],
)
def test_transformers_have_the_parameters_that_gpipe_counts(layers, millions):
    sizes = {"hidden": 2048, "inner": 8192, "heads": 32, "vocabulary": 32_000, "length": 1024}
    found = parameters("transformer", layers=layers, **sizes)
    assert found / 1e6 == pytest.approx(millions, rel=0.011)


def test_megatron_models_have_the_parameters_of_their_names():
    from papers import published

    (table,) = (each for each in published.tables() if each.paper == "Megatron-LM")
    for row in table.rows:
        sizes = {name: size for name, size in row.network.items() if name != "name"}
        # The embedding and the logits share their weights there.
        found = parameters("transformer", **sizes) - sizes["vocabulary"] * sizes["hidden"]
        assert found / 1e9 == pytest.approx(float(row.row.split()[0]), rel=0.03), row.row


def test_megatron_rates_and_times_follow_the_papers_formula():
    from papers import published

    (table,) = (each for each in published.tables() if each.paper == "Megatron-LM")
    # Equation 4 counts 8 operations for each token and parameter, and leaves out attention, which
    # adds a share of s / 6h.
    (gpt,) = (row for row in table.rows if row.row == "145.6 B")
    tokens, attention = gpt.batch * gpt.network["length"], 2048 / (6 * 12_288)
    assert gpt.flops() / tokens == pytest.approx(8 * 145.6e9 * (1 + attention), rel=0.005)


def test_every_row_names_its_source_and_fits_its_network():
    from papers import published

    for table in published.tables():
        assert len(table.read) > 20
        for row in table.rows:
            step = row.step()
            assert len(step.starts) == row.stages * row.virtual - 1
            assert list(step.starts) == sorted(set(step.starts))
            assert step.replicas * row.stages * row.shards == (row.devices or row.stages)


def test_the_planner_itself_predicts_the_same_step():
    from papers import published

    (table,) = (each for each in published.tables() if each.table == "AmoebaNet-D (18, 256)")
    (row,) = (each for each in table.rows if each.row == "n=8, m=32")
    step = row.step()
    # The planner repeats every microbatch; it knows no memory here, so that updates take no time.
    step = dataclasses.replace(step, recomputed=1.0, updates=False)
    parallel = ParallelSettings(
        strategy="grid", stages=8, microbatches=32, microbatch_schedule="gpipe", remat=True
    )
    settings = TrainingSettings(train=TrainSettings(batch_size=row.batch), parallel=parallel)
    times = [
        device_times.times(cost, step.accelerator, "float32", factor, row.batch / 32)
        for cost, factor in zip(
            step.costs, range_costs.backward(step.costs, remat=True), strict=True
        )
    ]
    links = collective_costs.links(step.accelerator.link_gb_per_second, None)
    planned = cost_model.CostModel(step.costs, times, settings, links, float("inf"))
    found = planned.step(planned.degrees, list(step.starts))
    assert found.length == pytest.approx(step.seconds())


def test_the_formulas_of_a_network_are_what_the_planner_reads_from_a_keras_model():
    from papers import layers

    given = keras.Input((12, 12, 8))
    hidden = keras.layers.Conv2D(16, 1, use_bias=False)(given)
    hidden = keras.layers.Conv2D(16, 3, padding="same", use_bias=False)(hidden)
    hidden = keras.layers.Conv2D(16, 3, 2, padding="same", use_bias=False)(hidden)
    hidden = keras.layers.Add()([hidden, keras.layers.ReLU()(hidden)])
    model = keras.Model(given, hidden)
    (found,) = costs.stage_costs([model], model_graph.of(model))

    first = layers.conv(layers.Image(12, 12, 8), 16)
    second = layers.conv(first.output, 16, (3, 3))
    third = layers.conv(second.output, 16, (3, 3), 2)
    active = layers.elementwise(third.output)
    ops = (first, second, third, active, layers.add(active.output))
    assert found.operations == tuple(op.cost(4) for op in ops)


@pytest.mark.parametrize(
    "accelerator", ["P40-24GB", "V100-16GB", "A100-80GB"], ids=["P40", "V100", "A100"]
)
def test_the_shares_of_peak_rates_are_calibrated(accelerator):
    from papers import calibration, published

    rows = [row for table in published.tables() for row in table.rows if row.calibrates]
    (row,) = (row for row in rows if row.accelerator == accelerator)
    share = min(calibration.efficiency(row), 1.0)
    # Written with two digits.
    assert ACCELERATORS[accelerator].efficiency == pytest.approx(share, abs=0.005)


def test_wrong_numbers_of_layers_are_refused():
    from papers import published

    row = published.Row(
        row="wrong",
        published=1,
        unit="examples/s",
        network={"name": "unet"},
        accelerator="P40-24GB",
        batch=2,
        stages=2,
        cuts=[100, 100],
    )
    with pytest.raises(ValueError, match="wrong"):
        row.step()


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_benchmark(tmp_path):
    script = PLANNING / "planner_papers.py"
    done = ran(sys.executable, script, "--markdown", cwd=tmp_path)
    assert done.stdout.strip() in PAGE.read_text(), f"python {script} --markdown"
    assert "not explained" not in done.stdout
    (count,) = re.findall(r"^(\d+) predictions", done.stdout, re.MULTILINE)
    assert f"{count} published measurements" in PAGE.read_text()


@pytest.mark.full
@pytest.mark.parametrize("option", ["--assumptions", "--mechanisms"])
def test_the_page_has_the_errors_under_other_models(option, tmp_path):
    script = PLANNING / "planner_papers.py"
    done = ran(sys.executable, script, option, cwd=tmp_path)
    words = r"^(.+?) +\d+ predictions: median error (\S+), largest (\S+), (\d+) above"
    summaries = re.findall(words, done.stdout, re.M)
    by_table = re.findall(r"^(.+): (\S+ \(\S+\)(?:; \S+ \(\S+\))+)$", done.stdout, re.M)
    assert len(summaries) == 7 and len(by_table) == (11 if option == "--mechanisms" else 0)
    rows = [" | ".join(each) for each in summaries if each[0] != "as assumed"]
    rows += [" | ".join((name, *errors.split("; "))) for name, errors in by_table]
    page = PAGE.read_text()
    assert [row for row in rows if f"| {row} |" not in page] == [], f"python {script} {option}"
