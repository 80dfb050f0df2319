"""Spans and versions in patterns of files: the same as TFX finds, and what TFX refuses."""

import json
import pathlib
import shutil

import pytest

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.archives import files


def make(folder: pathlib.Path, *names: str) -> pathlib.Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


LAYOUTS = {
    "numbers": ("span-{SPAN}/*", ["span-2/a", "span-2/b", "span-10/a"]),
    "widths": ("s{SPAN:3}.csv", ["s002.csv", "s010.csv", "s010.txt"]),
    "dates": ("{YYYY}-{MM}-{DD}/*", ["2026-11-27/a", "2026-12-01/a", "2025-12-31/a"]),
    "dates without separators": ("d{YYYY}{MM}{DD}/*", ["d20261127/a", "d20261201/a"]),
    "versions": ("{SPAN}/v{VERSION}/*", ["1/v9/a", "3/v2/a", "3/v10/a"]),
    "versions with widths": ("{SPAN}/v{VERSION:2}/*", ["1/v09/a", "3/v02/a", "3/v10/a"]),
    "two folders": ("a*/{SPAN}/*", ["ab/1/x", "ac/4/x", "ad/4/x"]),
}


@pytest.mark.parametrize(("pattern", "names"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_newest_span_and_version_are_those_of_tfx(tmp_path, pattern, names):
    from tfx.components.example_gen import utils
    from tfx.proto import example_gen_pb2

    make(tmp_path, *names)
    split = example_gen_pb2.Input.Split(name="all", pattern=pattern)
    _, number, version = utils.calculate_splits_fingerprint_span_and_version(str(tmp_path), [split])
    found = spans.find([f"{tmp_path}/{pattern}"])
    assert (found.number, found.version) == (number, version)
    assert found.patterns == (f"{tmp_path}/{split.pattern}",)


def test_other_names_are_ignored_and_zeros_need_no_width(tmp_path):
    make(tmp_path, "span-old/a", "span-007/a", "span-/a", "2026-02-30/a", "2026-02-28/a")
    numbers = spans.find([f"{tmp_path}/span-{{SPAN}}/*"])
    assert (numbers.number, numbers.patterns) == (7, (f"{tmp_path}/span-007/*",))
    days = spans.find([f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}/*"])
    assert (days.name, days.number) == ("2026-02-28", 20_512)


def test_a_span_counts_if_all_splits_have_it(tmp_path):
    make(tmp_path, "1/train/a", "1/eval/a", "2/train/a")
    (tmp_path / "3" / "train").mkdir(parents=True)  # no file yet
    (tmp_path / "3" / "eval").mkdir()
    patterns = [f"{tmp_path}/{{SPAN}}/{split}/*" for split in ("train", "eval")]
    found = spans.find(patterns)
    assert found.number == 1 and len(found.paths) == 2
    told = {"span": 1, "span_name": "1", "span_files": 2}
    assert found.properties() == told | {"span_patterns": json.dumps(patterns)}


@pytest.mark.parametrize("wanted", ["2026-11-27", "20784"])
def test_a_span_is_chosen_by_number_or_date(tmp_path, wanted):
    make(tmp_path, "2026-11-27/v1/a", "2026-11-27/v2/a", "2026-11-28/v1/a")
    found = spans.find([f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}/v{{VERSION}}"], wanted)
    assert (found.number, found.version, found.name) == (20_784, 2, "2026-11-27")


def test_a_missing_span_names_those_that_exist(tmp_path):
    make(tmp_path, "1/a", "3/a")
    with pytest.raises(spans.MissingSpanError) as refused:
        spans.find([f"{tmp_path}/{{SPAN}}"], "2")
    assert refused.value.exist == ("1", "3")
    assert (refused.value.setting, refused.value.value) == ("data.span", "2")
    with pytest.raises(spans.MissingSpanError) as none:
        spans.find([f"{tmp_path}/none-{{SPAN}}"])
    assert none.value.exist == () and none.value.setting == "data.source"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("span-{SPAN}/*", ("span-07/a", "span-7/a")),
        ("{SPAN}/v{VERSION}", ("7/v01/a", "7/v1/a")),
    ],
)
def test_two_names_of_one_span_are_refused(pattern, names, tmp_path):
    make(tmp_path, *names)
    with pytest.raises(spans.SpanNameError) as refused:
        spans.find([f"{tmp_path}/{pattern}"])
    both = [str((tmp_path / name).parent) for name in names]
    assert refused.value.file in both
    assert all(path in str(refused.value) for path in both)


def test_a_date_before_1970_is_refused(tmp_path):
    make(tmp_path, "1969-12-31/a", "2026-11-27/a")
    with pytest.raises(spans.SpanNameError) as refused:
        spans.find([f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}"])
    assert refused.value.file == f"{tmp_path}/1969-12-31"
    with pytest.raises(SettingError) as chosen:
        spans.number_of("1969-12-31")
    assert (chosen.value.setting, chosen.value.value) == ("data.span", "1969-12-31")


def test_the_state_of_a_span_changes_with_its_files(tmp_path):
    make(tmp_path, "1/v1/a")
    pattern = [f"{tmp_path}/{{SPAN}}/v{{VERSION}}"]
    first = spans.find(pattern).state()
    assert spans.find(pattern).state() == first
    make(tmp_path, "1/v1/b")
    second = spans.find(pattern).state()
    make(tmp_path, "1/v2/a")
    assert len({first, second, spans.find(pattern).state()}) == 3


def test_files_may_vanish_while_somebody_looks(tmp_path, monkeypatch):
    make(tmp_path, "1/a", "1/b.tmp", "1/old/c")
    (tmp_path / "1" / "link").symlink_to(tmp_path / "nowhere")
    span = spans.find([f"{tmp_path}/{{SPAN}}"])
    before, whole = span.state(), files.names

    def names(folder):
        """Lists a folder; then the writer renames one file, and somebody removes a folder."""
        found = whole(folder)
        if folder.endswith("/1"):
            (tmp_path / "1" / "b.tmp").rename(tmp_path / "1" / "b")
            shutil.rmtree(tmp_path / "1" / "old")
            (tmp_path / "1" / "old").touch()  # no longer a folder
        return found

    monkeypatch.setattr(files, "names", names)
    during = span.state()
    monkeypatch.undo()
    assert len({before, during, span.state()}) == 3


@pytest.mark.parametrize(
    "pattern",
    [
        "{SPAN}/{SPAN}",
        "{SPAN}/{YYYY}-{MM}-{DD}",
        "{YYYY}-{MM}",
        "v{VERSION}",
        "{SPAN:x}",
        "{SPAN:0}",
        "{YYYY:4}-{MM}-{DD}",
        "{SPAN}/{HOUR}",
    ],
)
def test_a_wrong_pattern_is_refused(pattern):
    with pytest.raises(SettingError) as refused:
        spans.check(pattern)
    assert (refused.value.setting, refused.value.value) == ("data.source", pattern)


@pytest.mark.parametrize(
    ("numbers", "size", "words"),
    [
        ((5, 6, 7), 3, "3 spans, 5 to 7"),
        ((7,), 1, "1 span, 7"),
        ((5, 7), 3, "2 of 3 spans: 5, 7; without 6"),
        ((1, 2), 3, "2 of 3 spans: 1, 2; none read before 1"),
        ((4, 7), 5, "2 of 5 spans: 4, 7; without 5, 6; none read before 4"),
    ],
)
def test_a_window_names_its_spans_and_its_gaps(numbers, size, words):
    read = [{"span": number, "name": str(number)} for number in numbers]
    assert spans.window(read, size).words() == words


def test_a_span_has_the_weight_of_its_place_in_the_window():
    read = [{"span": number, "span_name": str(number)} for number in (7, 5, 8.0)]  # as on Kubeflow
    assert spans.weights(read, [0.25, 0.5, 1, 2]) == [1, 0.25, 2]
    assert spans.weights(read, []) == []


@pytest.mark.parametrize(
    "read",
    [
        [{"span": 7, "span_name": "7"}, {"span": 0}],
        [{"span": 7, "span_name": "7"}, {"span": 5, "span_name": "5"}],
    ],
)
def test_examples_without_a_weight_are_refused(read):
    with pytest.raises(SettingError) as refused:
        spans.weights(read, [1, 2])
    assert refused.value.setting == "train.window_weights"


@pytest.mark.parametrize("wrong", ["yesterday", "{'x", '{"static_range": 7}', "{}[0]"])
def test_a_wrong_choice_is_refused(wrong):
    with pytest.raises(SettingError) as refused:
        spans.number_of(wrong)
    assert (refused.value.setting, refused.value.value) == ("data.span", wrong)


def test_a_choice_may_be_tfxs_range():
    assert spans.number_of('{"static_range": {"start_span_number": 7}}') == 7
    assert spans.number_of('{"rolling_range": {"num_spans": 1}}') is None
