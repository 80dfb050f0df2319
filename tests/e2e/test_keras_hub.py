"""Models of KerasHub from text in a CSV file to a pushed model that answers text."""

import csv
import json
import os
import pathlib
import subprocess

import hub_presets
import pytest
import tensorflow as tf
from processes import ran
from snippets import ROOT, snippets
from support import STAGECRAFT, run

from stagecraft.trainer_module.data.tasks.texts import sample

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = 600
GRID = {
    "strategy": "grid",
    "replicas": 2,
    "stages": 2,
    "microbatches": 2,
    "virtual_devices": 4,
}


def written(folder: pathlib.Path) -> pathlib.Path:
    """A folder with a CSV file of texts."""
    folder.mkdir(parents=True)
    rows = list(sample.rows())[:ROWS]
    with (folder / "texts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return folder


def settings(kind: str, preset: pathlib.Path, source: str) -> dict:
    args = {"text": "text", "preset": str(preset), "length": 24}
    if kind == "bert":
        task, model = "text_classification", "BertTextClassifier"
        args |= {"label": "label", "label_vocabulary": list(sample.LABELS)}
    else:
        task, model = "causal_lm", "GPT2CausalLM"
        args |= {"new_tokens": 8}
    return {
        "name": f"hub-{kind}",
        "task": {"name": task, "args": args},
        "data": {
            "example_gen": "tfx.components.CsvExampleGen",
            "source": source,
            "infer_schema": True,
        },
        "train": {
            "model": f"keras_hub:{model}",
            "initial_weights": str(preset),
            "steps": 40,
            "batch_size": 16,
            "learning_rate": 0.003,
        },
        # On a grid, sums have another order: equal models differ by a rounding.
        "evaluate": {"better_than_constant": False, "not_worse": False},
    }


def answers(kind: str, model: pathlib.Path) -> None:
    """Asks an exported model."""
    signatures = tf.saved_model.load(str(model)).signatures
    if kind == "bert":
        found = signatures["serving_columns"](text=tf.constant(["the food was good.", ""]))
        assert {*found["class_name"].numpy()} <= {b"negative", b"positive"}
        return
    ask = signatures["continue_text"]
    prompts = tf.constant(["the food was", "the staff", ""])

    def told(temperature, seed):
        given = {"temperature": tf.constant(temperature), "seed": tf.constant(seed, tf.int64)}
        return [*ask(prompts=prompts, **given)["continuations"].numpy()]

    assert told(0.0, 0) == told(0.0, 1) and told(1.0, 1) == told(1.0, 1)
    assert any(told(1.0, seed) != told(0.0, 0) for seed in range(3))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_on_one_device_and_on_a_grid(kind, tmp_path):
    getattr(hub_presets, kind)(tmp_path / "preset")
    tree = settings(kind, tmp_path / "preset", str(written(tmp_path / "data")))
    (tmp_path / "hub.yaml").write_text(json.dumps(tree))
    losses = []
    for parallel in ({}, GRID):
        changed = [f"parallel.{name}={value}" for name, value in parallel.items()]
        name = "grid" if parallel else "alone"
        words = ("--config", tmp_path / "hub.yaml")
        done = run(tmp_path / "out", *words, settings=(*changed, f"train.resume_id={name}"))
        assert done.result["blessed"] and done.result["pushed"]
        answers(kind, pathlib.Path(done.result["pushed"]))
        losses.append(done.result["metrics"]["loss"])
    # Dropout draws the same numbers, and sums differ in their order: a millionth in each of 40
    # steps, which AdamW's first steps make up to a hundred times larger.
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)


@pytest.mark.parametrize(("kind", "parallel"), [("bert", GRID), ("gpt2", {})])
def test_emulated_on_kubeflow(kind, parallel, tmp_path):
    getattr(hub_presets, kind)(tmp_path / "preset")
    written(tmp_path / "out/store/minio/mlpipeline/texts")
    tree = settings(kind, tmp_path / "preset", "minio://mlpipeline/texts")
    (tmp_path / "hub.yaml").write_text(json.dumps({**tree, "parallel": parallel}))
    words = ("--config", tmp_path / "hub.yaml", "--output", tmp_path / "compiled.yaml")
    ran(STAGECRAFT, "compile", *words)
    words = ("emulate", tmp_path / "compiled.yaml", "--output", tmp_path / "out")
    done = ran(STAGECRAFT, *words, code=None)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    assert {step["state"] for step in summary["steps"].values()} == {"done"}
    bucket = tmp_path / "out/store/minio"
    answers(kind, bucket / summary["pushed"].removeprefix("minio://"))


@pytest.mark.parametrize(
    ("file", "parameters"), [("gemma.yaml", 2_506_172_416), ("llama.yaml", 8_030_261_248)]
)
def test_a_plan_of_a_large_model_has_no_weights(file, parameters, tmp_path):
    hub_presets.hub()
    page = ROOT / "docs" / "how-to" / "keras-hub.md"
    [text] = [found.text for found in snippets(page.read_text()) if found.title == file]
    (tmp_path / file).write_text(text)
    words = ("plan", "--json", "--config", file, "--devices", "8xA100-80GB")
    output = tmp_path / "plan.json"
    with output.open("w") as stdout:
        process = subprocess.Popen([STAGECRAFT, *words], cwd=tmp_path, stdout=stdout)
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    assert usage.ru_maxrss * 1024 < 4e9
    plan = json.loads(output.read_text().splitlines()[-1])
    # An embedding that is also the head counts in the first and in the last stage.
    assert sum(stage["parameters"] for stage in plan["stages"]) >= parameters
    assert len(plan["stages"]) == 4 and plan["shards"] == 2
