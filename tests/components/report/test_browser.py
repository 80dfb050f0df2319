"""The page in a real browser, by itself and as Kubeflow's user interface shows it: in an iframe."""

import dataclasses
import html
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from stagecraft.components.evaluator.evaluation import Confusions, Slice
from stagecraft.components.report.pages import page
from stagecraft.components.report.report_data import ReportData

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome")

CHROMIUM = os.environ.get("STAGECRAFT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")

WIDTHS = {"desktop": 1280, "phone": 360}

OUTSIDE = """
() => [...document.querySelectorAll("main table, main pre, header *, main figure")]
  .filter(each => !each.closest(".scroll") && each.getBoundingClientRect().right > innerWidth)
  .map(each => each.outerHTML.slice(0, 80))
"""
"""Elements that end right of the screen, and not in a box that scrolls."""

SMALLEST = """
() => Math.min(...[...document.querySelectorAll("svg text")].map(each =>
  parseFloat(getComputedStyle(each).fontSize)
    * Math.hypot(each.getScreenCTM().a, each.getScreenCTM().b)))
"""
"""Height of the smallest text of a chart, in pixels."""

READABLE = 9.0
"""Pixels. Chromium's own least size of text is 6 where a script is Latin."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is here, nor $STAGECRAFT_CHROMIUM")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Without a sandbox of its own: it has none where root runs the tests.
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


class Seen:
    """A page that is open, and what it did."""

    def __init__(self, browser: Any, file: pathlib.Path, width: int, scheme: str):
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        ).new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def asked_elsewhere(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("data:", "file:", "about:"))]


def of(which: str, request: pytest.FixtureRequest, folder: pathlib.Path) -> pathlib.Path:
    report: ReportData = request.getfixturevalue(which)
    file = folder / "report.html"
    file.write_text(page.render(report), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
@pytest.mark.parametrize("which", ["one_device", "grid", "failed", "binary"])
def test_it_fits_is_quiet_and_can_be_read_by_all(which, width, scheme, browser, request, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    seen = Seen(browser, of(which, request, tmp_path), width, scheme)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate(OUTSIDE) == []
    if which != "failed":
        assert seen.page.evaluate(SMALLEST) >= READABLE
    violations = [
        (each["id"], each["impact"], each["nodes"][0]["target"])
        for each in axe.run(seen.page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert violations == []
    assert seen.complaints == []
    assert seen.asked_elsewhere() == []


@pytest.fixture
def binary(one_device: ReportData) -> ReportData:
    """A task of two classes, with long names, many slices and weights."""
    assert one_device.quality
    metrics = dict.fromkeys(("auc", "accuracy", "loss", "precision", "recall", "f1"), 0.123456)
    quality = dataclasses.replace(
        one_device.quality,
        metrics=metrics | {"example_count": 1234567.0},
        changes={"auc": 0.01},
        confusion=[],
        classes=[],
        mistakes=[],
        calibration=[],
        monitor="auc",
        thresholds={"recall": {"min": 0.5}},
        slices=[Slice("a_feature_with_a_long_name", f"a_value_{n}" * 4, metrics) for n in range(3)],
        sampled={"actual": [0.0, 1.0], "probability": [0.1, 0.9], "weight": [1.0, 2.0]},
        at_thresholds=[Confusions(n / 10, 12345.0, 12345.0, 0.5, 12.25) for n in range(1, 10)],
    )
    task = dataclasses.replace(one_device.task, sections=("binary",), noun="examples")
    return dataclasses.replace(one_device, quality=quality, task=task, class_names=())


def test_day_and_night_differ(browser, request, tmp_path):
    file = of("one_device", request, tmp_path)
    colours = {
        scheme: Seen(browser, file, 1280, scheme).page.evaluate(
            """[...document.querySelectorAll('body, #loss-figure_1, #loss-loss-train path')]
               .map(e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).stroke])"""
        )
        for scheme in ("light", "dark")
    }
    assert len(colours["light"]) == 3
    assert colours["light"][0] != colours["dark"][0]
    assert colours["light"][2] != colours["dark"][2]


def test_in_kubeflows_iframe(browser, request, tmp_path):
    inner = of("grid", request, tmp_path).read_text(encoding="utf-8")
    outer = tmp_path / "outer.html"
    outer.write_text(
        '<!DOCTYPE html><title>t</title><link rel="icon" href="data:,">'
        '<iframe sandbox="allow-scripts" style="width: 800px; height: 700px" '
        f'srcdoc="{html.escape(inner)}"></iframe>',
        encoding="utf-8",
    )
    seen = Seen(browser, outer, 1280, "light")
    frame = seen.page.frames[1]
    assert "accuracy" in frame.locator("h1").inner_text()
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    frame.locator("nav a", has_text="Topology").click()
    frame.wait_for_function("scrollY > 700")
    assert frame.url == "about:srcdoc"  # it was not led astray
    assert seen.complaints == []
    assert seen.asked_elsewhere() == []
