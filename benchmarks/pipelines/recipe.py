"""Takes the recipe of the preset cifar10 apart: accuracy and time without each of its pieces.

    python benchmarks/pipelines/recipe.py ARCHIVE [--seeds 3] [--epochs 8]
                                          [--model airbench_32_64_64]
                                          [--variant flip --variant float32]

ARCHIVE is that of CIFAR-10. Each variant changes the preset in one piece. Seeds are the outer loop,
so that a disturbance of the machine meets all variants. The accuracy is that of the Evaluator on
the test images; seconds are those of the Trainer. Differences and ratios are those of runs with the
same seed. --epochs is shorter than the preset, to compare more, and --model may name a smaller
network of its family; --epochs 12 without --model is the preset itself.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import tempfile
from typing import Any, NamedTuple

from common import call, figures, options, spread, stagecraft, versions

RECIPE = "recipe"

NETWORKS = pathlib.Path(__file__).resolve().parent / "ablated"

VARIANTS: dict[str, dict[str, Any]] = {
    RECIPE: {},
    "whitening": {
        "train.model": "networks:whitening",
        "train.freeze_after": "null",
        "train.learning_rate_multipliers": "{norm/beta: 64}",
    },
    "identity": {"train.model": "networks:identity"},
    "scale": {"train.model": "networks:scale"},
    "sgd": {
        "train.optimizer": "sgd",
        "train.optimizer_args": "null",
        "train.batch_size": 512,
        "train.learning_rate": 0.75,
        "train.weight_decay": 0.0089,
        "train.schedule_args": "null",
        "train.learning_rate_multipliers": "{norm/beta: 64}",
        "train.freeze_after": "{whitening/bias: 0.3}",
    },
    "batch": {
        "train.batch_size": 2000,
        "train.learning_rate": 1.66,
        "train.optimizer_args": "{rate_factor: 0.145, momentum: 0.6, iterations: 3, "
        "normalize_weights: true}",
    },
    "flip": {"train.augment": "flip,translate"},
    "translate": {"train.augment": "alternating_flip"},
    "crop": {"train.augment": "alternating_flip,crop"},
    "triangular": {"train.schedule_args": "null"},
    "biases": {"train.learning_rate_multipliers": "null"},
    "smoothing": {"train.label_smoothing": 0},
    "ema": {"train.ema_decay": 0.97},
    "lookahead": {"train.lookahead": 5},
    "views": {"train.test_time_augment": "none"},
    "freezing": {"train.freeze_after": "null"},
    "bias": {
        "train.frozen": "whitening",
        "train.freeze_after": "null",
        "train.learning_rate_multipliers": "{norm/beta: 64}",
    },
    "float32": {"parallel.precision": "float32"},
    "resnet20": {
        "train.model": "resnet20",
        "train.learning_rate_multipliers": "null",
        "train.freeze_after": "null",
    },
}
"""Settings that a variant changes. Most have the name of the piece that they remove. *whitening* is
an ordinary convolution, *identity* has Keras's initial kernels, *scale* adds one to normalisations.
*sgd* is the recipe of the paper, before Muon; *batch* doubles the batch, with the rates of
airbench94_muon.py. *flip* draws each flip by itself, *crop* moves by up to four pixels, with black
borders, and *triangular* is a schedule with a peak. *ema* and *lookahead* average weights. *bias*
freezes that of the whitening from the first step."""

OF_THE_EXPORT = ("views",)
"""Variants that change only the exported model: they export the training of the recipe again."""


class Outcome(NamedTuple):
    """The result of a run."""

    accuracy: float
    seconds: float
    """Of the Trainer."""


def main() -> None:
    parser = options(__doc__, seeds=3, epochs=8.0, model="airbench_64_256_256")
    parser.add_argument("archive", type=os.path.abspath)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS)[1:])
    parser.add_argument("--set", action="append", default=[], help="a setting of all variants")
    args = parser.parse_args()

    names = [RECIPE, *(args.variant or list(VARIANTS)[1:])]
    runs: dict[str, list[Outcome]] = {name: [] for name in names}
    os.environ["RECIPE_MODEL"] = args.model  # for ablated/networks.py
    print(f"{versions()}, {args.model}, {args.epochs:g} epochs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            for name in names:
                training = RECIPE if name in OF_THE_EXPORT else name
                common = {
                    "train.resume_id": f"{training}-{seed}",
                    "train.model": args.model,
                    "train.epochs": args.epochs,
                    "train.seed": seed,
                }
                changed = VARIANTS[name] | dict(each.split("=", 1) for each in args.set)
                outcome = run(args.archive, folder, common | changed)
                runs[name].append(outcome)
                print(
                    f"seed {seed} {name}: accuracy {outcome.accuracy:.4f}, {outcome.seconds:.0f} s",
                    flush=True,
                )
    for name, outcomes in runs.items():
        print(line(name, outcomes, runs[RECIPE]))
    recipe = runs[RECIPE]
    figures(
        higher={"recipe: accuracy": statistics.mean(each.accuracy for each in recipe)},
        lower={"recipe: seconds": statistics.median(each.seconds for each in recipe)},
    )


def line(name: str, outcomes: list[Outcome], recipe: list[Outcome]) -> str:
    """Mean accuracy, mean difference to the recipe, and the ratio of the seconds."""
    accuracies = [each.accuracy for each in outcomes]
    pairs = list(zip(outcomes, recipe, strict=True))
    differences = [one.accuracy - other.accuracy for one, other in pairs]
    ratios = [one.seconds / other.seconds for one, other in pairs]
    deviation = statistics.stdev(differences) if len(differences) > 1 else float("nan")
    return (
        f"{name:<10} accuracy {statistics.mean(accuracies):.4f}  - recipe "
        f"{statistics.mean(differences):+.4f} (deviation {deviation:.4f})  "
        f"seconds / recipe {spread(ratios)}"
    )


def run(archive: str, folder: str, settings: dict[str, Any]) -> Outcome:
    """Runs the preset with other settings; all runs share a folder, and so the data steps."""
    # Without a blessed model, no Evaluator measures a second one.
    fixed = {"evaluate.min_accuracy": 1, "report.enabled": "false"}
    words = ("run", "--json", "--config", "cifar10", "--data", archive, "--output", folder)
    output = call(stagecraft(*words, settings=fixed | settings), cwd=NETWORKS)
    result = json.loads(output.splitlines()[-1])
    return Outcome(result["metrics"]["accuracy"], result["components"]["Trainer"]["seconds"])


if __name__ == "__main__":
    main()
