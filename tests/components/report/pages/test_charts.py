"""Charts as SVG: colours of the page, names of their own, words for those who do not see them."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest

from stagecraft.components.report.pages import charts
from stagecraft.components.report.pages.charts import Chart, Ink
from stagecraft.components.report.report_data import ReportData

INKS = [value for name, value in vars(Ink).items() if name.isupper()]


@pytest.fixture(scope="module")
def drawn(grid: ReportData) -> list[Chart]:
    return all_of(grid)


def all_of(one_device: ReportData) -> list[Chart]:
    assert one_device.training and one_device.quality and one_device.training.timeline
    found = [
        *charts.curves(one_device.training),
        charts.calibration(one_device.quality.calibration, 0.05),
        charts.measured_step(one_device.training.timeline),
        charts.planned_step(one_device.training.record["plan"]),
    ]
    return [chart for chart in found if chart is not None]


def test_there_are_seven_and_each_is_its_own(drawn):
    found = drawn
    assert len(found) == 7
    ids = [each for chart in found for each in re.findall(r'\bid="([^"]+)"', chart.svg)]
    assert len(ids) == len(set(ids))


def test_colours_are_the_pages(drawn):
    for chart in drawn:
        assert not [ink for ink in INKS if ink in chart.svg]
        assert "var(--muted)" in chart.svg
        assert not re.search(r"#(?!\w*-)[0-9a-f]{6}\b", chart.svg), chart.title


def test_a_reference_stays_in_its_chart(drawn):
    for chart in drawn:
        root = ET.fromstring(chart.svg)
        ids = {element.get("id") for element in root.iter()}
        used = re.findall(r'(?:url\(#|href="#)([^)"]+)', chart.svg)
        assert set(used) <= ids


def test_it_says_what_there_is_to_see(drawn):
    loss, accuracy, *_ = drawn
    assert 'role="img"' in loss.svg
    [label] = re.findall('aria-label="Loss by step: ([^"]*)"', loss.svg)
    assert label.startswith("train 2.94 to 0.44, val 1 to 0.333")
    assert "val accuracy 0.5000 after step 200" in accuracy.svg


@pytest.mark.parametrize(
    ("losses", "from_zero"),
    [
        ((3.0, 1.0), True),
        ((1001.0, 1000.0), False),  # from zero, the curve would be a line at the top
        ((5.0, 5.0), True),
        ((-2.0, -1.0), False),
    ],
)
def test_an_axis_begins_where_the_curve_can_be_seen(one_device, losses, from_zero):
    training = one_device.training
    points = [training.curve[0]._replace(step=n, loss=loss) for n, loss in enumerate(losses)]
    evaluations = [{"step": 1, "loss": losses[1], "accuracy": 0.5}]
    record = training.record | {"evaluations": evaluations, "best": evaluations[0]}
    given = dataclasses.replace(training, curve=points, record=record)
    loss, *_ = charts.curves(given)
    numbers = re.findall(r">(−?[0-9.]+)</text>", loss.svg)
    zeros = [text for text in numbers if not text.strip("0.")]
    assert (len(zeros) > 1) is from_zero  # one is the step


@pytest.mark.parametrize("losses", [(float("inf"), 1.0), (float("nan"), float("nan")), (1e300, 1)])
def test_losses_that_cannot_be_drawn(one_device, losses):
    points = [
        one_device.training.curve[0]._replace(step=n, loss=loss) for n, loss in enumerate(losses)
    ]
    given = dataclasses.replace(one_device.training, curve=points)
    assert charts.curves(given)[0].title == "Loss"


def test_nothing_to_draw(one_device, grid):
    assert grid.training and one_device.training
    assert charts.calibration([], None) is None
    assert charts.measured_step({"spans": []}) is None
    plan = grid.training.record["plan"]
    assert charts.planned_step(plan | {"stages": plan["stages"][:1]}) is None


def test_the_same_twice(drawn, grid):
    assert all_of(grid) == drawn
