"""Settings of spans: what they exclude, and the path that stands for a span. No TensorFlow."""

from __future__ import annotations

import pathlib

import pytest
from PIL import Image

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.spans import MissingSpanError
from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.local.span_runs import SpanRuns
from stagecraft.pipeline.settings import SettingsError, load

CSV = ("data.example_gen=tfx.components.CsvExampleGen", "data.schema_file=schema.pbtxt")
TABLE = ("task.name=regression", "task.args={features: {a: numeric}, label: b}", *CSV)

INFERRED = ("data.schema_file=null", "data.infer_schema=true")


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        (("data.source=data", "data.span=7"), "data.span"),
        (("data.source=data", "data.window=7"), "data.window"),
        (("data.source=data/{SPAN}", "data.span=monday"), "data.span"),
        (("data.source=data/{YYYY}",), "data.source"),
        (
            ("data.source=data/{SPAN}", "data.window=7", *INFERRED),
            "data.window",
        ),
        *(
            (("data.source=data/{SPAN}", *more), "train.window_weights")
            for more in (
                ("train.window_weights=[1, 2]",),
                ("data.window=3", "train.window_weights=1,2"),
                ("data.window=2", "train.window_weights=[1, -2]"),
                ("data.window=2", "train.window_weights=[1, many]"),
                ("data.window=2", "train.window_weights=1,2", "transform.materialize=true"),
            )
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides, setting):
    with pytest.raises(SettingsError) as refused:
        load(None, (*TABLE, *overrides))
    assert refused.value.setting == setting


@pytest.mark.parametrize("span", ["7", "010", "007", "2026-11-27"])
def test_a_number_and_a_date_need_no_quotes(span):
    settings = load(None, (*TABLE, "data.source=data/{SPAN}", f"data.span={span}"))
    assert settings.data.span == span


def test_a_span_with_a_leading_zero_is_decimal(tmp_path: pathlib.Path):
    file = tmp_path / "flats.yaml"
    file.write_text("data: {source: 'data/{SPAN}', span: 010}")
    assert spans.number_of(load(str(file), TABLE).data.span) == 10
    with pytest.raises(SettingsError) as refused:
        load(None, (*TABLE, "data.source=data/{SPAN}", "data.span=0b11"))
    assert refused.value.setting == "data.span"


def test_a_window_is_a_component_of_its_own():
    settings = load(None, (*TABLE, "data.source=data/{SPAN}", "data.window=2"))
    assert nodes.WINDOW in nodes.of(settings)
    assert nodes.WINDOW not in nodes.by_default()


def test_a_span_of_pictures_gives_the_schema(tmp_path: pathlib.Path):
    for name in ("1/cat", "1/dog", "2/cat", "2/dog", "2/emu"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name / "1.png")
    settings = load(None, (f"data.source={tmp_path}/{{SPAN}}", f"data.cache_dir={tmp_path}/cache"))
    assert settings.data.generator(settings.task.found) == "folder"
    assert "emu" in pathlib.Path(str(settings.schema_path)).read_text()
    first = SpanRuns(settings, tmp_path).of(SpanRuns(settings, tmp_path).every()[0])
    assert "emu" not in pathlib.Path(str(first.schema_path)).read_text()


def test_spans_are_in_the_pattern_of_the_source_or_of_the_splits(tmp_path: pathlib.Path):
    for span in (1, 2):
        (folder := tmp_path / str(span)).mkdir()
        (folder / "rows.csv").write_text("a,b\n1,2\n")
    whole = load(None, (*TABLE, f"data.source={tmp_path}/{{SPAN}}"))
    files = load(None, (*TABLE, f"data.source={tmp_path}/{{SPAN}}/*.csv"))
    splits = "data.example_gen_args={input_config: {splits: [{name: all, pattern: '{SPAN}/*'}]}}"
    inside = load(None, (*TABLE, f"data.source={tmp_path}", splits))
    for settings in (whole, files, inside):
        found = early_checks.check_spans(settings)
        assert (found.number, found.paths) == (2, (f"{tmp_path}/2/rows.csv",))
    with pytest.raises(MissingSpanError) as refused:
        early_checks.check_data(
            load(None, (*TABLE, f"data.source={tmp_path}/{{SPAN}}", "data.span=3"))
        )
    assert refused.value.exist == ("1", "2")


def test_a_range_of_spans(tmp_path: pathlib.Path):
    for span in (0, 1, 3, 7):
        (tmp_path / str(span)).mkdir()
        (tmp_path / str(span) / "rows.csv").write_text("a,b\n1,2\n")
    runs = SpanRuns(load(None, (*TABLE, f"data.source={tmp_path}/{{SPAN}}")), tmp_path / "out")
    found, missing = runs.between("1:7")
    assert [span.number for span in found] == [1, 3, 7]
    assert missing == ["2", "4", "5", "6"]
    assert [span.number for span in runs.between("2:latest")[0]] == [3, 7]
    assert [span.number for span in runs.between("0")[0]] == [0]
    assert runs.completed(found) == {}
    with pytest.raises(MissingSpanError):
        runs.between("4:6")
    with pytest.raises(SettingError) as refused:
        runs.between("one:two")
    assert (refused.value.setting, refused.value.value) == ("--spans", "one")
    for text in ("", "latest", ":3", "7:1"):
        with pytest.raises(SettingError) as refused:
            runs.between(text)
        assert (refused.value.setting, refused.value.value) == ("--spans", text)
    assert "1:7" in str(refused.value), "what works"


def test_data_without_spans_have_no_runs_for_them(tmp_path: pathlib.Path):
    for source in ("data", "minio://bucket/{SPAN}"):
        runs = SpanRuns(load(None, (*TABLE, f"data.source={source}")), tmp_path)
        with pytest.raises(SettingError) as refused:
            runs.check()
        assert refused.value.setting == "data.source"
