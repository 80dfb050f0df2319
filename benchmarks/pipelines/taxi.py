"""Compares Stagecraft with TFX's taxi template: the AUC of the same model, and the time.

    python benchmarks/pipelines/taxi.py [--seeds 3] [--steps 1000]

Both pipelines read the CSV file in TFX's wheel, with the same splits, and train the template's
model on its features: same layers, optimizer, batch size and steps. The template
(``stock/taxi_template.py``) has all its components. Runs alternate. Seconds are those of the whole
process, from its start. The AUC is that of the Trainer's SavedModel on the split eval.
"""

from __future__ import annotations

import functools
import os
import pathlib
import statistics
import sys
import tempfile
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from common import call, figures, options, spread, stagecraft, timed, versions

STOCK = pathlib.Path(__file__).resolve().parent / "stock"
TEMPLATE = STOCK / "taxi_template.py"


class Outcome(NamedTuple):
    """What a run took, and what it gave."""

    seconds: float
    auc: float
    examples: list[bytes]  # of the split eval, sorted


def main() -> None:
    parser = options(__doc__, seeds=3)
    parser.add_argument("--steps", type=int, default=1000, help="the template's default: 1000")
    args = parser.parse_args()

    runs: dict[str, list[Outcome]] = {"template": [], "ours": []}
    with tempfile.TemporaryDirectory() as scratch:
        code = pathlib.Path(scratch) / "code"
        variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(code), str(STOCK)])}
        call([sys.executable, TEMPLATE, "copy", code])
        for seed in range(args.seeds):
            for side, words in (("template", template), ("ours", ours)):
                output = pathlib.Path(scratch) / f"{side}-{seed}"
                output.mkdir()
                command = words(output, seed, args.steps)
                seconds = timed(functools.partial(call, command, env=variables))
                runs[side].append(Outcome(seconds, *scored(output)))
                print(
                    f"seed {seed} {side}: {seconds:.0f} s, AUC {runs[side][-1].auc:.4f}", flush=True
                )

    pairs = list(zip(runs["ours"], runs["template"], strict=True))
    if any(one.examples != other.examples for one, other in pairs):
        sys.exit("the splits differ")
    print(
        f"TFX {version('tfx')}, {versions()}, {args.steps} steps, "
        f"{len(pairs[0][0].examples):,} examples for the AUC"
    )
    for side, outcomes in runs.items():
        mean = statistics.mean(each.auc for each in outcomes)
        print(
            f"{side}: AUC {mean:.4f}, seconds {spread([each.seconds for each in outcomes], '.1f')}"
        )
    differences = [one.auc - other.auc for one, other in pairs]
    shown = ", ".join(f"{each:+.4f}" for each in differences)
    print(f"AUC, ours - template: {statistics.mean(differences):+.4f} ({shown})")
    ratios = [one.seconds / other.seconds for one, other in pairs]
    print(f"seconds, ours / template: {spread(ratios)}")
    figures(
        higher={"AUC, Stagecraft": statistics.mean(each.auc for each in runs["ours"])},
        lower={"seconds, Stagecraft / template": statistics.median(ratios)},
    )


def template(output: pathlib.Path, seed: int, steps: int) -> list:
    return [sys.executable, TEMPLATE, "run", output, seed, steps]


def ours(output: pathlib.Path, seed: int, steps: int) -> list:
    from tfx.experimental.templates.taxi.models.keras_model import constants

    from stagecraft.trainer_module.data.tasks.kinds.taxi import TAXI

    settings = {
        "task.name": "taxi_task:TAXI",
        "data.schema_file": TAXI.schema_file,
        "train.model": "taxi_task:model",
        "train.epochs": "null",
        "train.steps": steps,
        "train.batch_size": constants.TRAIN_BATCH_SIZE,
        "train.optimizer": "adam",
        "train.learning_rate": constants.LEARNING_RATE,
        "train.schedule": "constant",
        "train.weight_decay": 0,
        "train.seed": seed,
        "evaluate.thresholds": "{accuracy: {min: 0.6}}",
    }
    return stagecraft("run", "--config", "taxi", "--output", output, settings=settings)


def scored(output: pathlib.Path) -> tuple[float, list[bytes]]:
    """The AUC of the exported model on the split eval, and the examples."""
    import tensorflow as tf

    [model] = output.glob("pipeline_root/Trainer/model/*/Format-Serving")
    files = output.glob("pipeline_root/*ExampleGen/examples/*/Split-eval/*")
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    # The same example may have its features in another order.
    parsed = map(tf.train.Example.FromString, records.as_numpy_iterator())
    examples = sorted(each.SerializeToString(deterministic=True) for each in parsed)
    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    found = serve(examples=tf.constant(examples))
    scores = found.get("probability", found.get("outputs")).numpy().reshape(-1)
    spec = {"big_tipper": tf.io.FixedLenFeature([], tf.int64)}
    labels = tf.io.parse_example(examples, spec)["big_tipper"].numpy()
    return auc(scores, labels), examples


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under the ROC curve: the share of pairs that are in order (Mann and Whitney)."""
    from scipy import stats

    positive = int(labels.sum())
    pairs = positive * (len(labels) - positive)
    ranks = stats.rankdata(scores)[labels == 1].sum()
    return float((ranks - positive * (positive + 1) / 2) / pairs)


if __name__ == "__main__":
    main()
