"""From facts to the sentences that page, summary and model card share."""

from __future__ import annotations

import importlib.metadata
import shlex
from typing import Any, NamedTuple

from stagecraft.components.report.facts import Facts, Quality, Training
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.settings import TrainingSettings

_WATCHED = 20
"""Step that a hint proposes to watch: by then, nothing is compiled or read for the first time."""


class Tile(NamedTuple):
    """A figure that stands by itself."""

    name: str
    value: str
    note: str = ""


class Pair(NamedTuple):
    """Two classes, of which one is taken for the other."""

    actual: str
    predicted: str
    times: int


class Option(NamedTuple):
    """A setting of the training."""

    name: str
    value: str
    changed: bool
    """From the default."""


def version() -> str:
    """Stagecraft's own."""
    return importlib.metadata.version("stagecraft")


def percent(value: float | None) -> str:
    """``12.3%``; a dash where nothing is known."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """``12,345``; a dash where nothing is known."""
    return "–" if value is None else f"{value:,.0f}"


def size(count: float) -> str:
    """Bytes as ``1.2 MB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def duration(seconds: float) -> str:
    """``1.2 s``, ``45 s``, ``3 min 20 s`` or ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def verdict(facts: Facts) -> str:
    """Whether the model is good enough, in a sentence or two."""
    quality, broken = facts.quality, broke(facts)
    if quality is None:
        return broken or "Not evaluated."
    what = f"Accuracy {percent(quality.metrics['accuracy'])} on {number(_count(quality))} pictures"
    if quality.baseline is not None:
        what += f", the last blessed model's is {percent(quality.baseline)}"
    if not quality.blessed:
        what += f". Not blessed: {'; '.join(quality.failures) or 'no reason given'}."
    else:
        where = f"pushed as version {facts.pushed_version}" if facts.pushed_to else "not pushed"
        what += f". Blessed, and {where}."
    return f"{what} {broken}".rstrip()


def broke(facts: Facts) -> str:
    """Which component failed or was stopped, and why; empty where the run came to its end."""
    if not (found := facts.broken):
        return ""
    if found.state == "stopped":
        without = " without --fresh" if "--fresh" in shlex.split(facts.command) else ""
        return (
            f"{found.name} was stopped before its end; the same command{without} goes on from what "
            "is finished."
        )
    return f"{found.name} failed: {found.cause.rstrip('.') or 'no cause was noted'}."


def unrecorded(facts: Facts) -> str:
    """What is missing where a ``run_fn`` left no record; empty where it did, or none has run."""
    if facts.training or all(item.role != "model_run" for item in facts.lineage):
        return ""
    return (
        "The run_fn that trained the model wrote no record.json: how it learned, its settings, "
        "its devices and its speed are not known. "
        "stagecraft.trainer_module.training.record.write_for writes one."
    )


def compared(quality: Quality) -> str:
    """How the model fares beside the last blessed one, in a sentence."""
    if quality.baseline is None:
        return "There was no blessed model to compare it with."
    points = round(100 * quality.changes["accuracy"], 2)
    if not points:
        return "As accurate as the last blessed model."
    side = "above" if points > 0 else "below"
    return f"{abs(points):g} percentage points {side} the last blessed model."


def tiles(facts: Facts) -> list[Tile]:
    """The figures under the verdict."""
    found = []
    if facts.quality:
        metrics = facts.quality.metrics
        if "top_3_accuracy" in metrics:
            found.append(Tile("Among the top 3", percent(metrics["top_3_accuracy"])))
        if "loss" in metrics:
            found.append(Tile("Loss", f"{metrics['loss']:.3f}", "nats an example"))
        if "expected_calibration_error" in metrics:
            error = metrics["expected_calibration_error"]
            found.append(Tile("Calibration error", percent(error), "confidence from accuracy"))
    if training := facts.training:
        record = training.record
        weights = "" if training.parameters is None else f"{number(training.parameters)} weights"
        anew = record["resumed_from"] < record["steps"]
        found += [
            Tile("Model", str(record["settings"]["train_model"]), weights),
            Tile(
                "Training",
                f"{number(record['steps'])} steps",
                _spent(facts) if anew else "by an earlier run",
            ),
            Tile(
                "Speed",
                f"{number(record['images_per_second'])}/s",
                "images, in training" if anew else "images, in the earlier run",
            ),
            Tile("Topology", grid_text(record), devices_text(record)),
        ]
    return found


def _spent(facts: Facts) -> str:
    for component in facts.components:
        if component.name == "Trainer":
            seconds = component.original_seconds
            return f"in {duration(component.seconds if seconds is None else seconds)}"
    return ""


def grid_text(record: dict[str, Any]) -> str:
    """The topology in a word or two: ``one device``, ``2 × 3 grid``."""
    topology = record["topology"]
    replicas = topology["workers"] * len(topology["devices"]) // topology["stages"]
    return strategy.label(topology["strategy"], replicas, topology["stages"])


def devices_text(record: dict[str, Any]) -> str:
    """How many devices there are, of which kind."""
    topology = record["topology"]
    count = topology["workers"] * len(topology["devices"])
    kind = topology["devices"][0].partition(":")[0]
    own = "logical " if record["settings"]["parallel_virtual_devices"] else ""
    return f"{count} {own}{kind}{'s' if count != 1 else ''}"


def topology(record: dict[str, Any]) -> str:
    """How devices worked together, in a sentence or two."""
    found, settings = record["topology"], record["settings"]
    if found["workers"] * len(found["devices"]) == 1:
        return f"One device, {found['devices'][0]}: nothing is divided."
    workers = found["workers"]
    where = f"{workers} processes" if workers > 1 else "one process"
    text = f"{grid_text(record)} on {devices_text(record)} in {where}"
    text = text[0].upper() + text[1:]
    text += f": batches of {number(settings['train_batch_size'])} pictures"
    if found["stages"] > 1:
        text += (
            f", each replica's part in {settings['parallel_microbatches']} microbatches, "
            f"schedule {settings['parallel_schedule']}"
        )
    return f"{text}. {strategy.find(found['strategy']).fidelity}"


def unwatched(record: dict[str, Any], command: str) -> str:
    """Why there is no timeline, in a sentence.

    Args:
        record: of the training.
        command: that asked for the run; empty: not known.
    """
    step = record["settings"]["parallel_timeline_step"]
    run = command or "with the settings below in run.yaml, stagecraft run --config run.yaml"
    anew = " ".join(option for option in ("--fresh", "--from Trainer") if option not in run)
    if not step:
        step = min(_WATCHED, record["steps"])
        return (
            f"No step was watched; {run} {anew} --timeline {step}".rstrip()
            + f" writes down when each stage made each pass of step {step}."
        )
    return f"Step {number(step)} was taken by an earlier attempt; {run} {anew}".rstrip() + (
        " takes it anew."
    )


def learned(training: Training) -> str:
    """What was trained on what, and which weights were taken."""
    record = training.record
    text = (
        f"{record['settings']['train_model']}, {number(record['steps'])} steps of "
        f"{number(record['settings']['train_batch_size'])} pictures with "
        f"{record['settings']['train_optimizer']}."
    )
    if loaded := record.get("initial_weights"):
        text += (
            f" {number(loaded['variables'])} of {number(loaded['total'])} variables began with "
            f"the values of {loaded['file']}."
        )
    if best := record["best"]:
        text += (
            f" Exported are the weights after step {number(best['step'])}, the best on the split "
            f"val: accuracy {percent(best['accuracy'])}."
        )
    if record["resumed_from"] == record["steps"]:
        text += (
            " An earlier run had trained them all, on the topology that it had; this one took none "
            "(stagecraft run --fresh --from Trainer trains anew)."
        )
    elif record["resumed_from"]:
        text += (
            f" It went on from step {number(record['resumed_from'])}, to which an earlier attempt "
            "had come."
        )
    return text


def pairs(quality: Quality, most: int = 10) -> list[Pair]:
    """The classes that are most often taken for others, most frequent first."""
    names = [each.name for each in quality.classes]
    found = [
        Pair(names[actual], names[predicted], count)
        for actual, row in enumerate(quality.confusion)
        for predicted, count in enumerate(row)
        if count and actual != predicted
    ]
    return sorted(found, key=lambda pair: -pair.times)[:most]


def confused(quality: Quality) -> str:
    """The most frequent confusion, in a sentence; empty where nothing is confused."""
    if not (found := pairs(quality, 1)):
        return "Nothing was confused."
    [pair] = found
    return f"Most often, {pair.actual} is taken for {pair.predicted}: {number(pair.times)} times."


def calibrated(quality: Quality) -> str:
    """Whether confidence can be believed, in a sentence."""
    right = sum(each.examples * each.accuracy for each in quality.calibration)
    sure = sum(each.examples * each.confidence for each in quality.calibration)
    count = sum(each.examples for each in quality.calibration)
    how = "more" if sure > right else "less"
    return (
        f"The model is {how} confident than right: {percent(sure / count)} sure on average, and "
        f"right in {percent(right / count)} of the cases. Bars on the dashed line would be "
        "perfect; below are the numbers of answers."
    )


def data_text(facts: Facts) -> str:
    """What was read, and whether it is as it should be."""
    data = facts.data
    if data is None:
        return "Not known."
    counts = ", ".join(f"{number(split.examples)} {split.name}" for split in data.splits)
    text = f"{data.source or 'The examples'}: {counts}."
    if data.anomalies is None:
        return text
    found = [f"{split}: {each}" for split, each_of in data.anomalies.items() for each in each_of]
    return f"{text} {'Anomalies: ' + '; '.join(found) if found else 'No anomalies'}."


def waited(training: Training) -> str:
    """The bubble as it was and as it was predicted."""
    seen, plan = training.timeline or {}, training.record["plan"]
    text = (
        f"{1e3 * seen['seconds']:,.0f} ms. Of the time between the first pass and the last, stages "
        f"waited {percent(seen['idle'])}. Equal stages would wait {percent(seen['bubble'])}"
    )
    return f"{text}, and those of the plan {percent(plan['idle'])}." if plan else f"{text}."


def options(training: Training) -> list[Option]:
    """All settings of the training."""
    default = TrainingSettings().flat()
    return [
        Option(name.replace("_", ".", 1), str(value), value != default.get(name))
        for name, value in training.record["settings"].items()
    ]


def _count(quality: Quality) -> float:
    return quality.metrics["example_count"]
