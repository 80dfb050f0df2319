"""The page as text: what is in it, what is not, and that all of it is inside."""

import collections
import dataclasses
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from chains import chain, settings

from stagecraft.components.metadata.run_metadata import ComponentRun
from stagecraft.components.report.pages import model_card, page, sentences
from stagecraft.components.report.report_data import ReportData
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.planning.search.result import SearchResult

EXTERNAL = re.compile(r"""(?:src|href)=["'](?!data:|#)|url\((?!#)|@import|<script[^>]""")


class Outline(HTMLParser):
    """Tables, ids and section titles of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.tables: list[collections.Counter[str]] = []
        self.unscoped = 0
        self.images_without_text = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag == "table":
            self.tables.append(collections.Counter())
        elif self.tables:
            self.tables[-1][tag] += 1
        self.unscoped += tag == "th" and given.get("scope") not in ("col", "row")
        self.images_without_text += tag == "img" and not given.get("alt")


@pytest.fixture(scope="module")
def rendered(one_device: ReportData, grid: ReportData, failed: ReportData) -> dict[str, str]:
    reports = {"one_device": one_device, "grid": grid, "failed": failed}
    return {name: page.render(report) for name, report in reports.items()}


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', text)


def test_of_one_device(rendered):
    text = rendered["one_device"]
    assert sections(text) == [
        "training", "quality", "mistakes", "data", "topology", "pipeline", "lineage", "reproduce",
    ]  # fmt: skip
    assert "76.7% accuracy on 30 test images" in text
    assert "pushed as version 17" in text
    assert "6.67 percentage points above" in text
    assert "required 30.0%" in text and "last blessed 70.0%" in text
    assert "One device, CPU:0." in text
    assert "123,456 weights" in text
    assert "in 1 min 15 s" in text
    assert "--timeline" not in text  # there is none to be watched
    assert text.count("data:image/png") == 3 + 6


def test_of_a_grid(rendered):
    text = rendered["grid"]
    assert sections(text)[4:6] == ["topology", "parity"]
    assert "2 × 3 grid on 6 logical CPUs" in text and "in one process" in text
    assert re.search("idle for 40.0%.*33.3%.*35.0%", text)
    assert "forward 0, replica 1, stage 2: 200.0 to 290.0 ms (90.0 ms)" in text
    assert "one device in 8 accumulation steps" in text


def with_training(report: ReportData, **changes: Any) -> ReportData:
    assert report.training is not None
    return replace(report, training=replace(report.training, **changes))


@pytest.mark.parametrize("name", ["grid", "one_device"])
def test_the_choice_of_a_search(name, request):
    report = request.getfixturevalue(name)
    asked = settings(strategy="auto", memory_mb=9)
    found = automatic.search(chain(4, width=512), asked, hosts=1, devices=4).found
    entry = json.loads(json.dumps(dataclasses.asdict(found)))
    record = report.training.record | {"search": entry}
    assert SearchResult.of_record(entry) == found
    text = sentences.topology(record)
    before = sentences.topology(report.training.record)
    assert text.startswith(before) and "auto" not in before
    assert text.removeprefix(before).strip() in page.render(with_training(report, record=record))


def test_a_grid_that_nobody_watched(grid):
    text = page.render(with_training(grid, timeline=None))
    assert "<h3>Timeline</h3>" in text
    assert "Measured share" not in text


def test_of_a_run_that_failed(rendered):
    text = rendered["failed"]
    assert "<h1>Cifar10ExampleGen failed</h1>" in text
    assert "Failed</span> data.bin: record 7 has label &lt;10&gt;; expected 0 to 9</p>" in text
    assert "<code>runs/quickstart/logs/20260102-030401.log</code>" in text
    assert sections(text) == ["pipeline"]


def test_of_a_run_that_failed_after_its_evaluation(one_device):
    pusher = ComponentRun(name="Pusher", state="failed", seconds=1, cause="no space")
    text = page.render(replace(one_device, components=[pusher], pushed_to=None))
    assert "test images</h1>" in text
    assert f"Failed</span> Pusher failed: {pusher.cause}.</p>" in text


def test_of_a_run_that_was_stopped(failed, rendered):
    """Ctrl-C is no failure: its badge has no colour of one."""
    [component] = failed.components
    stopped = replace(component, state="stopped", cause="")
    text = page.render(replace(failed, components=[stopped]))
    assert "<h1>Cifar10ExampleGen was stopped</h1>" in text
    assert '<span class="badge">Stopped</span>' in text
    assert "badge bad" not in text
    assert '<span class="badge bad">Failed</span>' in rendered["failed"]
    assert "same command." in text
    fresh = replace(failed, components=[stopped], command="stagecraft run --fresh")
    assert "same command without --fresh." in page.render(fresh)


def test_of_a_run_that_failed_with_what_it_noted(failed):
    never = ComponentRun(name="Trainer", state="not run")
    noted = replace(
        failed,
        components=[*failed.components, never],
        command="stagecraft run --set train.steps=9",
        settings="train:\n  steps: 9\n",
    )
    text = page.render(noted)
    assert sections(text) == ["pipeline", "reproduce"]
    assert ">stagecraft run --set train.steps=9</pre>" in text
    assert "steps: 9" in text
    assert '<th scope="row">Trainer</th><td>not run</td><td class="number"></td>' in text


@pytest.mark.parametrize(("steps", "step"), [(300, 20), (6, 6)])
def test_the_hint_about_the_timeline_is_a_command_that_runs(grid, steps, step):
    """With the run's own settings, a step that the training has, and trained anew."""
    assert grid.training is not None
    settings = {**grid.training.record["settings"], "parallel_timeline_step": 0}
    record = {**grid.training.record, "steps": steps, "settings": settings}
    command = "stagecraft run --set parallel.strategy=grid"
    one_device = replace(with_training(grid, timeline=None, record=record), command=command)
    assert f": {command} --fresh --from Trainer --timeline {step}<" in page.render(one_device)
    watched = {**record, "settings": settings | {"parallel_timeline_step": 3}}
    text = page.render(with_training(one_device, record=watched))
    assert "ran step 3." in text and f": {command} --fresh --from Trainer<" in text
    unknown = page.render(replace(one_device, command=""))
    assert f"--fresh --from Trainer --timeline {step}" in unknown
    assert "stagecraft run --config run.yaml (with" in unknown


def test_of_a_run_without_an_evaluator(one_device):
    text = page.render(replace(one_device, quality=None, pushed_to=None))
    assert "<h1>Not evaluated</h1>" in text
    assert "without an Evaluator" in text


def test_a_training_that_took_no_step_claims_none(one_device):
    assert one_device.training is not None
    record = {**one_device.training.record, "resumed_from": one_device.training.record["steps"]}
    text = page.render(with_training(one_device, record=record))
    found = re.findall(r"<small>([^<]*earlier run)</small>", text)
    assert len(found) == 2


def test_a_model_that_is_not_blessed(one_device):
    assert one_device.quality is not None
    quality = replace(
        one_device.quality, blessed=False, changes={}, failures=["accuracy 0.7667 is below 0.9000"]
    )
    text = page.render(replace(one_device, quality=quality, pushed_to=None))
    assert "Not blessed" in text and "accuracy 0.7667 is below 0.9000. The model" in text
    assert "no blessed model" in text


def test_a_training_that_logged_nothing(one_device):
    assert "No curves:" in page.render(with_training(one_device, curve=[]))


def test_a_hundred_classes_have_no_matrix(one_device):
    assert one_device.quality is not None
    names = tuple(f"class{number}" for number in range(100))
    one = one_device.quality.classes[0]
    confusion = [
        [90 if a == b else 10 if b == a + 1 else 0 for b in range(100)] for a in range(100)
    ]
    quality = replace(
        one_device.quality, confusion=confusion, classes=[replace(one, name=name) for name in names]
    )
    text = page.render(replace(one_device, quality=quality, class_names=names))
    assert 'class="confusion"' not in text
    assert "Most frequent confusions" in text


def test_all_of_it_is_inside(rendered):
    for text in rendered.values():
        assert not EXTERNAL.search(text)
        assert len(text) < 1_000_000


@pytest.mark.parametrize("which", ["one_device", "grid"])
def test_tables_and_pictures_can_be_read_aloud(which, rendered):
    outline = Outline(rendered[which])
    assert outline.tables
    assert all(table["caption"] == 1 for table in outline.tables)
    assert outline.unscoped == 0
    assert outline.images_without_text == 0
    assert not [each for each, count in collections.Counter(outline.ids).items() if count > 1]


def test_names_from_data_are_text(rendered):
    text = rendered["one_device"]
    assert "<script>alert" not in text
    assert text.count("<script") == 1  # ours
    assert "&lt;script&gt;alert(1)&lt;/script&gt;|" in text


def test_names_that_nobody_sees_are_shown(one_device):
    name = "\x1b[31mred\u202e\nend\x85"
    assert one_device.quality is not None
    classes = [replace(each, name=name) for each in one_device.quality.classes]
    report = replace(
        one_device,
        pipeline=name,
        class_names=(name, name, name),
        quality=replace(one_device.quality, classes=classes),
    )
    card = page.card(report, model_card.as_json(report))
    for text in (page.render(report), page.summary(report), card):
        assert not re.search("[\x1b\u202e\x85]", text)
        assert r"\x1b[31mred\u202e" in text.replace("\\\\", "\\").replace("\\[", "[")


def test_shards_have_columns_of_their_own(grid):
    assert grid.training is not None
    record = grid.training.record
    topology = record["topology"] | {"stages": 1, "shards": 3}
    training = replace(grid.training, record=record | {"topology": topology})
    text = page.render(replace(grid, training=training))
    assert "2 × 1 × 3 grid" in text
    for shard in range(3):
        assert f'<th scope="col">Stage 0, shard {shard}</th>' in text
