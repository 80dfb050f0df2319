"""The main job on real pictures: counts, accuracy, and the pushed model in plain TensorFlow."""

import json
import pathlib
import sys

import pytest
from processes import ran
from support import STAGECRAFT, run

pytestmark = pytest.mark.slow

BARE = """
import json, sys
import tensorflow as tf
model_dir, *files = sys.argv[1:]
signatures = tf.saved_model.load(model_dir).signatures
serve, by_image = signatures["serving_default"], signatures["serving_images"]
spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
confusion = [[0] * 10 for _ in range(10)]
names, same = set(), True
for examples in tf.data.TFRecordDataset(sorted(files)).batch(500):
    out = serve(examples=examples)
    raw = tf.io.parse_example(examples, spec)
    images = tf.reshape(tf.io.decode_raw(raw["image"], tf.uint8), [-1, 32, 32, 3])
    same &= bool(tf.reduce_all(by_image(images=images)["class_id"] == out["class_id"]))
    names |= {name.decode() for name in out["class_name"].numpy()}
    for actual, predicted in zip(raw["label"].numpy(), out["class_id"].numpy()):
        confusion[actual][predicted] += 1
ours = ("stagecraft", "tensorflow_transform", "tfx")
loaded = [m for m in sys.modules if m.split(".")[0] in ours]
print(json.dumps({"confusion": confusion, "names": sorted(names), "same": same, "loaded": loaded}))
"""


def test_real_pictures_from_archive_to_pushed_model(cifar10_small, tmp_path):
    output = tmp_path / "out"
    done = run(
        output,
        "--config",
        "quickstart",
        "--data",
        cifar10_small / "cifar-10-binary.tar.gz",
        settings=("train.epochs=4",),  # of ten; `make run` makes all of them
    )
    result = done.result
    assert set(result) >= {
        "pipeline", "run_id", "seconds", "examples", "components",
        "metrics", "blessed", "pushed", "output",
    }  # fmt: skip
    assert result["pipeline"] == "quickstart"
    assert result["examples"] == {"train": 4500, "val": 500, "eval": 1000}
    assert result["metrics"]["accuracy"] > 0.4  # chance is 0.1
    assert result["blessed"] is True
    assert set(done.states.values()) == {"done"}

    pushed = [folder for folder in (output / "serving").iterdir() if folder.name.isdigit()]
    assert len(pushed) == 1 and result["pushed"]

    from stagecraft.components.evaluator.results import read_evaluation

    (evaluation,) = (output / "pipeline_root" / "Evaluator" / "evaluation").iterdir()
    found = read_evaluation(str(evaluation))
    assert found.metrics["accuracy"] == pytest.approx(result["metrics"]["accuracy"])
    assert sorted(found.per_class) == list(range(10))

    page = pathlib.Path(result["report"]).read_text()
    assert f"{result['metrics']['accuracy']:.1%} accuracy on 1,000 test images" in page
    assert page.count("data:image/png") == len(found.mistakes) + 5 * 6 + 6
    assert len(page) < 3_000_000
    assert result["components"]["TrainingReport"]["seconds"] < 20  # most of it is imports
    card = json.loads((pushed[0] / "model_card.json").read_text())
    assert card["model_details"]["version"]["name"] == pushed[0].name

    listed = ran(STAGECRAFT, "history", output, "--json")
    (past,) = json.loads(listed.stdout.splitlines()[-1])["runs"]
    source = str(cifar10_small / "cifar-10-binary.tar.gz")
    assert past["settings"] == {"data.source": source, "train.epochs": 4}
    assert past["metrics"]["accuracy"] == pytest.approx(result["metrics"]["accuracy"], abs=1e-6)
    for name in ("run_id", "examples", "blessed", "pushed"):
        assert past[name] == result[name]
    assert {name: each["state"] for name, each in past["components"].items()} == done.states
    assert (past["state"], past["topology"]) == ("done", "one device")

    (examples,) = (output / "pipeline_root" / "Cifar10ExampleGen" / "examples").iterdir()
    files = sorted(str(file) for file in (examples / "Split-eval").iterdir())
    bare = ran(sys.executable, "-I", "-c", BARE, pushed[0], *files, cwd=tmp_path)
    plain = json.loads(bare.stdout.splitlines()[-1])
    assert plain["confusion"] == found.confusion
    assert plain["same"] and "airplane" in plain["names"]
    assert plain["loaded"] == []
