"""Mistakes in the data and settings of a table: each is found early, by name, with what works.

A mistake runs through the checks in their order: settings, the file's header, the reader, and
AnomalyGate on the inferred schema. Nothing of it needs Beam.
"""

import gzip
import io
import json

import pytest
import tensorflow as tf  # noqa: F401 (before the statistics)
from gated_tables import Gated

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.kinds import checked_csv, columns, csv_rows
from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.checks import early_checks
from stagecraft.trainer_module.data.tasks.mismatches import MismatchError

SPLITS = ("train", "val", "eval")
BINARY, CLASSES, NUMBER = "binary_classification", "classification", "regression"


def cells(**changed):
    """Columns of twelve rows: two numbers, two texts, a weight and three kinds of label."""
    return {
        "a": [str(n - 4) for n in range(12)],
        "b": [f"{n / 7:.3f}" for n in range(12)],
        "town": ["Ulm", "Bonn", "Trier"] * 4,
        "w": ["1", "2"] * 6,
        "price": [f"{n * 1.5:.1f}" for n in range(12)],
        "answer": ["no", "yes"] * 6,
        "grade": ["1", "2", "3"] * 4,
        **changed,
    }


def text(columns, delimiter=","):
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(delimiter.join(line) + "\n" for line in lines)


def csv(**changed):
    return text(cells(**changed)).encode()


def some(name, *values):
    """The column, with other values in its first rows."""
    return {name: [*values, *cells()[name][len(values) :]]}


GOOD = csv()
FEATURES = {"a": "numeric", "b": "numeric", "town": "vocabulary"}


def task(name=BINARY, label="answer", features=FEATURES, **args):
    return {"name": name, "args": {"features": features, "label": label, **args}}


def args(**features):
    return task(features={**FEATURES, **features})


def file(content, **expected):
    """A mistake in the bytes of the training file, which the early check finds."""
    return {"train": content}, task(), "early", expected


def row(content, line, **expected):
    """A mistake in a later row, which the reader finds."""
    return {"train": content}, task(), "reader", {"record": str(line), **expected}


def column(given, **expected):
    """A name that no column has."""
    return {}, given, "early", expected


def data(given, settings, setting, **expected):
    """Data that do not fit the settings, by AnomalyGate."""
    if not isinstance(given, dict) or not set(given) <= set(SPLITS):
        given = {split: csv(**given) for split in SPLITS}
    return given, settings, "gate", {"setting": setting, **expected}


HEADER, FIRST = GOOD.split(b"\n")[0], GOOD.split(b"\n")[1]
WEIGHTS = {"no": 1, "maybe": 2}

MISTAKES = {
    # The file.
    "utf_16": file(text(cells()).encode("utf-16"), value="UTF-16"),
    "latin_1_header": file(GOOD.replace(b"town", "größe".encode("latin-1")), record="1"),
    "excel": file(b"PK\x03\x04" + GOOD, value="a ZIP archive or an Excel file"),
    "line_ends_of_old_macs": file(
        GOOD.replace(b"\n", b"\r"), suggestion="line ends of Unix or Windows"
    ),
    "parquet": file(b"PAR1" + GOOD, value="Parquet"),
    "empty": file(b"", suggestion="a first line with the names of the columns"),
    "blank": file(b"\n\n", suggestion="a first line with the names of the columns"),
    "header_alone": file(HEADER + b"\n", suggestion="a file with rows"),
    "no_header": file(b"1,2.5\n2,3.5\n", suggestion="a first line with the names of the columns"),
    "first_row_too_long": file(HEADER + b"\n" + FIRST + b",9\n", record="2", value=8),
    "cut_gzip": file(gzip.compress(GOOD * 50)[:40], suggestion="the whole file"),
    "latin_1": row(csv(**some("town", "Ulm", "Köln")).replace(b"\xc3\xb6", b"\xf6"), 3),
    "row_too_long": row(GOOD + FIRST + b",9\n", 14, value=8),
    "row_too_short": row(GOOD + b"1,2\n", 14, value=2),
    "decimal_comma_without_quotes": row(GOOD + FIRST.replace(b".", b",", 1) + b"\n", 14, value=8),
    "a_null_byte": row(csv(**some("town", "Ulm", "\0")), 3),
    "open_quote": row(GOOD + b'1,1.0,"Ulm,1,2.0,no,1\n', 14),
    "two_columns_of_one_name": (
        {"train": GOOD.replace(b"town", b"a", 1)},
        task(features={"a": "numeric"}),
        "reader",
        {"record": "a"},
    ),
    # Names of columns.
    "case_of_a_column": column(
        args(Town="hashed"), setting="task.args.features.Town", suggestion="'town'"
    ),
    "wrong_column": column(args(twon="hashed"), record="twon", suggestion="'town'"),
    "wrong_source": column(
        args(c={"kind": "numeric", "source": "bb"}), setting="task.args.features.c", value="bb"
    ),
    "wrong_label": column(task(label="anwser"), setting="task.args.label", suggestion="'answer'"),
    "wrong_weight": column(task(weight="ww"), setting="task.args.weight", suggestion="'w'"),
    "nothing_alike": column(task(label="zzzzz"), setting="task.args.label", value="zzzzz"),
    # Values.
    "text_for_a_number": data(
        some("a", "1", "many"), task(), "task.args.features.a", record="a", value="numeric"
    ),
    "decimal_comma": data(
        some("b", '"1,5"', '"1,5"'),
        task(),
        "task.args.features.b",
        suggestion="decimal points in the data, such as 1.5",
    ),
    "buckets_of_texts": data(
        {}, args(town="bucketized"), "task.args.features.town", value="bucketized"
    ),
    "identity_of_texts": data({}, args(town="identity"), "task.args.features.town"),
    "a_source_of_texts": data(
        {}, args(c={"kind": "numeric", "source": "town"}), "task.args.features.c", record="town"
    ),
    "a_label_of_texts": data(
        {}, task(NUMBER), "task.args.label", suggestion="task.name: classification"
    ),
    "a_weight_of_texts": data(
        {},
        task(weight="town", features={"a": "numeric"}),
        "task.args.weight",
        suggestion="a column of numbers",
    ),
    "a_missing_label": data(some("answer", ""), task(), "task.args.label", record="answer"),
    "a_missing_number": data(
        some("price", "1", "NA"), task(NUMBER, "price"), "task.args.label", record="price"
    ),
    "a_missing_weight": data(some("w", ""), task(weight="w"), "task.args.weight"),
    "a_missing_label_of_eval": data(
        {"eval": csv(**some("answer", ""))}, task(), "task.args.label", record="answer"
    ),
    "infinity": data(some("a", "1", "inf"), task(), "", record="a"),
    "an_infinite_label": data(some("price", "inf"), task(NUMBER, "price"), "", record="price"),
    "beyond_float32": data(some("b", "1e39"), task(), "", record="b"),
    "a_column_without_values": data({"a": [""] * 12}, task(), "task.args.features.a"),
    "another_type_in_eval": data(
        {"eval": csv(**some("a", "few"))}, task(), "task.args.features.a", value="numeric"
    ),
    # Labels.
    "three_labels": data(some("answer", "perhaps"), task(), "task.args.label"),
    "three_numbers": data({}, task(label="grade"), "task.args.label", value="grade"),
    "one_label": data({"answer": ["yes"] * 12}, task(), "task.args.label"),
    "one_class": data({"answer": ["yes"] * 12}, task(CLASSES), "task.args.label"),
    "wrong_positive": data(
        {}, task(positive="Yes"), "task.args.positive", value="Yes", suggestion="one of no, yes"
    ),
    "positive_of_fractions": data({}, task(label="price", positive="1.5"), "task.args.positive"),
    "too_few_classes": data(
        {}, task(CLASSES, "town", {"a": "numeric"}, num_classes=2), "task.args.num_classes"
    ),
    "labels_from_1": data(
        {}, task(CLASSES, "grade", num_classes=3), "task.args.num_classes", value=3
    ),
    "a_vocabulary_without_a_label": data(
        {},
        task(CLASSES, label_vocabulary=["no", "maybe"]),
        "task.args.label_vocabulary",
        suggestion="['maybe', 'no', 'yes']",
    ),
    "a_vocabulary_without_a_label_of_eval": data(
        {"eval": csv(**some("answer", "perhaps"))},
        task(CLASSES, label_vocabulary=["no", "yes"]),
        "task.args.label_vocabulary",
    ),
    "weights_of_other_classes": data(
        {}, task(CLASSES, class_weights=WEIGHTS), "task.args.class_weights", value="maybe"
    ),
    "weights_of_more_classes": data(
        {}, task(CLASSES, class_weights=[1, 2, 3]), "task.args.class_weights"
    ),
}


def records(content, folder):
    """The examples of a file, as CsvExampleGen makes them."""
    path = folder / "one.csv"
    path.write_bytes(content)
    with open(path, "rb") as stream:
        names = [name for name in csv_rows.read(stream, str(path)).names if name]
    columns.check_names(names, str(path))
    rows = list(checked_csv._rows(names, str(path)))
    infer = checked_csv._Types(names, skip_blank_lines=True)
    found = infer.create_accumulator()
    for each in rows:
        found = infer.add_input(found, each)
    types = infer.extract_output(found)
    return [checked_csv._example(each, types).SerializeToString() for each in rows]


def stages(folder, contents, given, slices=()):
    """Runs all checks; yields the name of each before it runs."""
    yield "settings"
    (folder / "data").mkdir()
    for split in SPLITS:
        (folder / "data" / f"{split}.csv").write_bytes(contents.get(split, GOOD))
    splits = [{"name": split, "pattern": f"{split}.csv"} for split in SPLITS]
    tree = {
        "task": given,
        "data": {
            "example_gen": "tfx.components.CsvExampleGen",
            "source": str(folder / "data"),
            "infer_schema": True,
            "example_gen_args": {"input_config": {"splits": splits}},
        },
        "evaluate": {"slices": list(slices)},
    }
    (folder / "settings.yaml").write_text(json.dumps(tree))
    settings = pipeline_settings.load(str(folder / "settings.yaml"))
    yield "early"
    early_checks.check_data(settings)
    yield "reader"
    found = {split: records(contents.get(split, GOOD), folder) for split in SPLITS}
    yield "gate"
    table = Gated(folder / "table", found, settings.task.found.categories)
    table.schema(settings.task.found.schema_features)
    chosen = json.dumps(settings.task.model_dump(mode="json", exclude_none=True))
    numbers = settings.task.found.number_features
    yield table.gate(numbers, task=chosen, inferred=1)


def refused(folder, *mistake):
    """The stage that refuses, and its error."""
    passed = []
    with pytest.raises(UserError) as caught:
        passed.extend(stages(folder, *mistake))
    assert str(caught.value).count("\n") == 0
    return passed[-1], caught.value


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_early_by_name(name, tmp_path):
    contents, given, stage, expected = MISTAKES[name]
    found, error = refused(tmp_path, contents, given)
    assert found == stage
    assert {field: getattr(error, field) for field in expected} == expected
    if stage in ("early", "reader"):
        assert error.file.endswith(".csv")


GOOD_TABLES = {
    "plain": ({}, task()),
    "a_mark": ({"train": b"\xef\xbb\xbf" + GOOD}, task()),
    "semicolons": ({split: text(cells(), ";").encode() for split in SPLITS}, task()),
    "tabs": ({"eval": text(cells(), "\t").encode()}, task()),
    "gzip_without_its_name": ({"train": gzip.compress(GOOD)}, task()),
    "line_ends_of_windows": ({"train": GOOD.replace(b"\n", b"\r\n")}, task()),
    "missing_numbers": ({"train": csv(**some("a", "NA", "?", "", "NULL"))}, task()),
    "empty_lines": ({"train": GOOD + b"\n\n"}, task()),
    "labels_from_1": ({}, task(CLASSES, "grade")),
    "labels_1_and_2": ({}, task(label="w")),
    "zeros_alone": ({split: csv(answer=["0"] * 12) for split in SPLITS}, task()),
    "classes_as_texts": ({}, task(CLASSES, "town", {"a": "numeric"}, class_weights={"Ulm": 2})),
    "as_many_classes_as_said": ({}, task(CLASSES, "town", {"a": "numeric"}, num_classes=3)),
    "one_against_all": ({}, task(label="town", features={"a": "numeric"}, positive="Ulm")),
    "a_new_town": ({"eval": csv(**some("town", "Rom"))}, task()),
    "a_new_text_that_nobody_uses": (
        {"eval": csv(**some("town", "Rom"))},
        task(features={"a": "numeric"}),
    ),
    "gaps_that_nobody_uses": (
        {"eval": csv(**some("b", "", "NA"))},
        task(features={"a": "numeric"}),
    ),
    "a_line_break_in_a_name": ({"train": text({'"x\ny"': ["1"] * 12, **cells()}).encode()}, task()),
    "an_index": ({"train": text({"": list("abcdefghijkl"), **cells()}).encode()}, task()),
}


@pytest.mark.parametrize("name", GOOD_TABLES)
def test_a_table_as_people_have_it(name, tmp_path):
    *_, anomalies = stages(tmp_path, *GOOD_TABLES[name])
    assert anomalies.get_string_custom_property("unseen_labels") == ""


def test_a_label_that_the_train_split_lacks_is_counted(tmp_path):
    contents = {"eval": csv(**some("answer", "perhaps", "perhaps", "yes?"))}
    *_, anomalies = stages(tmp_path, contents, task())
    found = anomalies.get_string_custom_property("unseen_labels")
    assert "perhaps (2)" in found and "yes? (1)" in found


def test_all_mismatches_are_one_list(tmp_path):
    contents = {split: csv(**some("a", "few"), **some("answer", "")) for split in SPLITS}
    given = task(CLASSES, weight="town", features={"a": "numeric", "b": "numeric"})
    stage, error = refused(tmp_path, contents, given)
    assert stage == "gate"
    assert [each.feature for each in error.mismatches] == ["a", "town", "answer"]


def test_all_wrong_names_are_one_list(tmp_path):
    given = args(x="numeric", y="numeric") | {}
    stage, error = refused(tmp_path, {}, given, ["twon"])
    assert stage == "early" and isinstance(error, MismatchError)
    assert [each.feature for each in error.mismatches] == ["twon", "x", "y"]
    assert error.setting == "evaluate.slices"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2", ""], "INT"),
        (["1", "-2.5"], "FLOAT"),
        (["0", "0.5", "NA"], "FLOAT"),
        (["01022024", "31122024"], "STRING"),
        (["10115", "01234"], "STRING"),
        (["2024_01", "2024_02"], "STRING"),
        (["-01", "1"], "STRING"),
    ],
)
def test_the_type_of_a_column_of_csv(cells, kind):
    infer = checked_csv._Types(["a"], skip_blank_lines=True)
    found = infer.create_accumulator()
    for each in cells:
        found = infer.add_input(found, [each.encode()])
    [(name, found_kind)] = infer.extract_output(found)
    assert (name, found_kind.name) == ("a", kind)


def rows_of(text):
    names, rows = csv_rows.read(io.BytesIO(text.encode()), "rows.csv")
    return names, list(rows)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ('a,b\n5" pipe,1\n5" x 6",2\n', ["a", "b"], [['5" pipe', "1"], ['5" x 6"', "2"]]),
        ('5" pipe,b\nx,1\n', ['5" pipe', "b"], [["x", "1"]]),
        ('a,"b\nc"\n"x\n""y""",1\n', ["a", "b\nc"], [['x\n"y"', "1"]]),
        ('a;b\n"x" ;1\n', ["a", "b"], [["x ", "1"]]),
    ],
)
def test_quotes_in_cells(text, names, rows):
    assert rows_of(text) == (names, rows)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n"x,1\ny,2\n', "2"),
        ('a,b\nx,1\n"y,2\n"z,3\n', "3"),
        ('"a,b\nx,1\n', "1"),
        ('"a,b\n' + "x,1\n" * 3000, "1"),
    ],
)
def test_a_quote_that_nothing_closes(text, line):
    with pytest.raises(UserError) as caught:
        rows_of(text)
    assert (caught.value.file, caught.value.record) == ("rows.csv", line)


def check(source, example_gen="tfx.components.CsvExampleGen"):
    """The early check of a path."""
    overrides = [
        f"data.example_gen={example_gen}",
        f"data.source={source}",
        "data.infer_schema=true",
        "task.name=regression",
        "task.args.features.a=numeric",
        "task.args.label=price",
    ]
    early_checks.check_data(pipeline_settings.load(None, overrides))


def test_a_folder_of_folders(tmp_path):
    """Their ExampleGen says what it needs."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.png").touch()
    check(tmp_path, "stagecraft.components.ImageFolderExampleGen")


OTHER_FILES = {
    "csv_as_records": ("tfx.components.ImportExampleGen", {"rows.csv": GOOD}, "rows.csv"),
    "short": ("tfx.components.ImportExampleGen", {"rows": b"a"}, "rows"),
    "gzip": ("tfx.components.ImportExampleGen", {"rows": gzip.compress(GOOD)}, "rows"),
    "no_files": ("tfx.components.CsvExampleGen", {}, "*"),
    "a_folder_alone": ("stagecraft.components.ParquetExampleGen", {"more/rows.csv": GOOD}, "*"),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_files_of_another_kind(name, tmp_path):
    example_gen, files, expected = OTHER_FILES[name]
    for each, content in files.items():
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_bytes(content)
    with pytest.raises(UserError) as caught:
        check(tmp_path, example_gen)
    assert caught.value.file == str(tmp_path / expected)


@pytest.mark.parametrize("name", ["data[1].csv", "a*.csv", "[2024]/rows.csv", "{x}/rows.csv"])
def test_a_path_with_characters_of_patterns(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(GOOD)
    with pytest.raises(UserError) as caught:
        check(path)
    assert (caught.value.setting, caught.value.value) == ("data.source", str(path))
