"""Labels and cells as people have them: from a file to predictions with names."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from support import run

SPLITS = {"train": 600, "val": 100, "eval": 100}
SEED = {name: number for number, name in enumerate(SPLITS)}


def rows(split, labels):
    """Cells by column: the label depends on two numbers, one of which has gaps."""
    draw = np.random.default_rng(SEED[split])
    for number in range(SPLITS[split]):
        a, b = draw.normal(size=2)
        place = int(a > 0) + int(len(labels) > 2 and b > 0)
        yield {
            "": number,  # the index of pandas
            "a": f"{a:.3f}",
            "b": "NA" if number % 10 == 0 else f"{b:.3f}",
            "town": ["Ulm", "Bonn"][number % 2],
            "remark": "" if number % 3 else f"{split} {number}",
            "answer": labels[place],
        }


def text(table, **dialect):
    """A table as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(table[0]), **dialect)
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


def settings(folder, task, args, **more):
    """A settings file of a table in three files."""
    features = {"a": "numeric", "b": "numeric", "town": {"kind": "vocabulary", "size": 5}}
    tree = {
        "name": "labels",
        "task": {"name": task, "args": {"features": features, "label": "answer", **args}},
        "data": {
            "example_gen": "tfx.components.CsvExampleGen",
            "source": str(folder),
            "infer_schema": True,
            "example_gen_args": {
                "input_config": {
                    "splits": [{"name": name, "pattern": f"{name}*"} for name in SPLITS]
                }
            },
        },
        **more,
    }
    path = folder.parent / "labels.yaml"
    path.write_text(json.dumps(tree))
    return path


def served(output):
    """The pushed model."""
    [model] = (output / "serving").iterdir()
    return tf.saved_model.load(str(model)).signatures["serving_columns"]


def request(**changed):
    """Tensors of two rows, which differ in the number that decides."""
    given = {"a": [-2.0, 2.0], "b": [-2.0, 2.0], "town": ["Ulm", "Rom"], **changed}
    return {name: tf.constant(values) for name, values in given.items()}


def slices(output):
    """Examples by label, as the report shows them."""
    [page] = (output / "pipeline_root").glob("TrainingReport/report/*/report.html")
    return page.read_text()


@pytest.mark.slow
def test_labels_as_texts_from_a_spreadsheet(tmp_path):
    """UTF-8 with a mark, semicolons, gzip without .gz, NA, an index, and new texts in eval."""
    data = tmp_path / "data"
    data.mkdir()
    for split in SPLITS:
        table = list(rows(split, ["no", "yes"]))
        if split == "eval":
            for row in table[:7]:
                row["answer"] = "perhaps"
            for row in table[::5]:
                row |= {"town": "Rom", "remark": ""}
        content = ("\ufeff" + text(table, delimiter=";")).encode()
        (data / f"{split}.csv").write_bytes(gzip.compress(content) if split == "val" else content)
    output = tmp_path / "out"
    done = run(output, "--config", settings(data, "binary_classification", {}), settings=())
    assert done.result["blessed"] and done.result["metrics"]["auc"] > 0.95
    found = served(output)(**request())
    assert found["class_name"].numpy().tolist() == [b"no", b"yes"]
    page = slices(output)
    assert "perhaps" in page and "Predicted yes" in page
    assert "eval: answer perhaps (7)" in page


@pytest.mark.slow
@pytest.mark.parametrize("labels", [["1", "2"], ["low", "mid", "high"]])
def test_classes_of_the_train_split(labels, tmp_path):
    """Without ``num_classes``: from 1 instead of 0, and as texts with weights by name."""
    data = tmp_path / "data"
    data.mkdir()
    for split in SPLITS:
        (data / f"{split}.csv").write_text(text(list(rows(split, labels))))
    args = {"class_weights": {labels[0]: 2}}
    output = tmp_path / "out"
    done = run(output, "--config", settings(data, "classification", args), settings=())
    assert done.result["blessed"] and done.result["metrics"]["accuracy"] > 0.85
    found = served(output)(**request())
    ends = [labels[0], labels[-1]]
    assert [name.decode() for name in found["class_name"].numpy()] == ends
    assert found["probabilities"].shape == (2, len(labels))
