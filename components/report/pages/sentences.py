"""Sentences about a run: verdict, quality and data; model, topology and timeline."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from stagecraft.common.text import duration
from stagecraft.components.evaluator.evaluation import BETTER_THAN_CONSTANT, MAX, MIN
from stagecraft.components.report.pages.formats import metric, number, percent, title
from stagecraft.components.report.report_data import AUGMENTATION, Quality, ReportData, Training
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.planning.search.result import SearchResult, sentence
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training.record import metrics_of

_PROFILED = 20
"""Step that a hint proposes to profile: nothing is traced or read for the first time any more."""


def verdict(report: ReportData) -> str:
    """Whether the model is good enough."""
    quality, failed = report.quality, failure(report)
    if quality is None:
        return failed or "Not evaluated."
    name, examples = quality.monitor, quality.metrics["example_count"]
    text = f"{title(name)} {metric(name, quality.value)} on {number(examples)} {report.task.noun}"
    if quality.baseline is not None:
        text += f" (last blessed model: {metric(name, quality.baseline)})"
    if not quality.blessed:
        text += f". Not blessed: {'; '.join(quality.failures) or 'no reason given'}."
    elif report.pushed_to:
        text += f". Blessed and pushed as version {report.pushed_version}."
    else:
        text += ". Blessed, not pushed."
    return " ".join(filter(None, (text, compared_with_constant(quality), failed)))


def failure(report: ReportData) -> str:
    """Which component failed or was stopped, and why; empty if the run completed."""
    if not (component := report.broken):
        return ""
    if component.state == "stopped":
        without = " without --fresh" if "--fresh" in shlex.split(report.command) else ""
        return f"{component.name} was stopped. To resume the run, repeat the same command{without}."
    return f"{component.name} failed: {component.cause.rstrip('.') or 'unknown cause'}."


def compared_with_constant(quality: Quality) -> str:
    """By how much the model is better than a constant; empty if the verdict says it."""
    if not quality.comparison or quality.comparison in quality.failures:
        return ""
    first, _, rest = quality.comparison.partition(" ")
    return f"{title(first)} {rest}."


def compared(quality: Quality) -> str:
    """Compares the metric ``monitor`` with that of the last blessed model."""
    if quality.baseline is None:
        return "There was no blessed model to compare with."
    if not quality.is_share:
        name = quality.monitor
        return f"The last blessed model has {name} {metric(name, quality.baseline)}."
    points = round(100 * quality.changes["accuracy"], 2)
    if not points:
        return "As accurate as the last blessed model."
    side = "above" if points > 0 else "below"
    return f"{abs(points):g} percentage points {side} the last blessed model."


def required(quality: Quality) -> str:
    """The thresholds of a blessing; empty if there are none."""
    texts = [
        f"{name} {words} {metric(name, bounds[bound])}"
        for name, bounds in quality.thresholds.items()
        for bound, words in ((MIN, "at least"), (MAX, "at most"))
        if bound in bounds and name != BETTER_THAN_CONSTANT
    ]
    return f"Required: {', '.join(texts)}." if texts else ""


def weighted(quality: Quality) -> str:
    """Whether the metrics count the examples by their weights; empty if they have none."""
    return "All metrics are weighted by the weights of the examples." if quality.is_weighted else ""


def worst_slice(report: ReportData) -> str:
    """The slice with the worst metric ``monitor``; empty without slices."""
    quality = report.quality
    if quality is None or not quality.slices:
        return ""
    name = quality.monitor
    known = [each for each in quality.slices if not math.isnan(each.metrics.get(name, math.nan))]
    if not known:
        return ""
    choose = min if report.task.higher_is_better else max
    worst = choose(known, key=lambda each: each.metrics[name])
    shown = metric(name, worst.metrics[name])
    return f"Worst {name} of a slice: {shown}, of {worst.feature} {worst.value}."


def confusions(quality: Quality, most: int = 10) -> list[tuple[str, str, int]]:
    """Actual class, predicted class and examples of the confusions, most frequent first."""
    names = [each.name for each in quality.classes]
    pairs = [
        (names[actual], names[predicted], count)
        for actual, row in enumerate(quality.confusion)
        for predicted, count in enumerate(row)
        if count and actual != predicted
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]


def most_confused(quality: Quality) -> str:
    """The most frequent confusion."""
    for actual, predicted, examples in confusions(quality, 1):
        return (
            f"Most frequent confusion: {actual} predicted as {predicted}, {number(examples)} times."
        )
    return "No class was confused with another."


def calibrated(quality: Quality) -> str:
    """Whether the model is overconfident."""
    bins = quality.calibration
    count = sum(each.examples for each in bins)
    accuracy = sum(each.examples * each.accuracy for each in bins) / count
    confidence = sum(each.examples * each.confidence for each in bins) / count
    return (
        f"The model is {'over' if confidence > accuracy else 'under'}confident: mean confidence "
        f"{percent(confidence)}, accuracy {percent(accuracy)}. The bars of a calibrated model end "
        "on the dashed line. The lower chart shows the number of predictions."
    )


def data_text(report: ReportData) -> str:
    """The examples of each split, and the anomalies."""
    data = report.data
    if data is None:
        return "Unknown."
    counts = ", ".join(f"{number(split.examples)} {split.name}" for split in data.splits)
    source = data.source or "The examples"
    text = f"{source}{f' ({data.span})' if data.span else ''}: {counts}."
    if data.span:
        trained = f"trained on {data.window}, and " if data.window else ""
        name = data.span.partition(",")[0]
        text += f" The model is {trained}evaluated on the split eval of {name}."
    if data.unseen:
        text += f" These examples count nowhere, since train lacks their labels: {data.unseen}."
    if data.anomalies is None:
        return text
    anomalies = [f"{split}: {each}" for split, found in data.anomalies.items() for each in found]
    return f"{text} {'Anomalies: ' + '; '.join(anomalies) if anomalies else 'No anomalies'}."


class Tile(NamedTuple):
    """A number with its name, shown below the verdict."""

    name: str
    value: str
    note: str = ""


def tiles(report: ReportData) -> list[Tile]:
    """The key numbers of a run."""
    found = []
    noun = report.task.noun
    if report.quality and not report.quality.confusion:
        found += [Tile(title(n), metric(n, x)) for n, x in report.quality.others.items()]
    elif report.quality:
        metrics = report.quality.metrics
        if "top_3_accuracy" in metrics:
            found.append(Tile("Top-3 accuracy", percent(metrics["top_3_accuracy"])))
        if "loss" in metrics:
            found.append(Tile("Loss", f"{metrics['loss']:.3f}", "nats per example"))
        if "expected_calibration_error" in metrics:
            error = metrics["expected_calibration_error"]
            found.append(Tile("Calibration error", percent(error), "|confidence − accuracy|"))
    if training := report.training:
        record = training.record
        weights = "" if training.parameters is None else f"{number(training.parameters)} weights"
        trained = record["resumed_from"] < record["steps"]
        steps, speed = f"{number(record['steps'])} steps", number(record["images_per_second"])
        found += [
            Tile("Model", str(record["settings"]["train_model"]), weights),
            Tile("Training", steps, _training_time(report) if trained else "by an earlier run"),
            Tile("Speed", f"{speed}/s", noun if trained else f"{noun}, in an earlier run"),
            Tile("Topology", grid_text(record), devices_text(record)),
        ]
    return found


def _training_time(report: ReportData) -> str:
    for component in report.components:
        if component.name == "Trainer":
            seconds = component.original_seconds
            return f"in {duration(component.seconds if seconds is None else seconds, tenths=True)}"
    return ""


def unrecorded(report: ReportData) -> str:
    """Names the parts that are missing if the ``run_fn`` wrote no record; empty if it did."""
    if report.training or all(item.role != "model_run" for item in report.lineage):
        return ""
    return (
        "The run_fn that trained the model wrote no record.json, so its curves, settings, devices "
        "and speed are unknown. stagecraft.trainer_module.training.record.write_for writes this "
        "file."
    )


def grid_text(record: dict[str, Any]) -> str:
    """The topology in a word or two: ``one device``, ``2 × 3 grid``."""
    topology = record["topology"]
    stages, shards = topology["stages"], topology.get("shards", 1)
    replicas = topology["workers"] * len(topology["devices"]) // (stages * shards)
    return strategy.label(topology["strategy"], replicas, stages, shards)


def devices_text(record: dict[str, Any]) -> str:
    """Number and kind of the devices."""
    topology = record["topology"]
    count = topology["workers"] * len(topology["devices"])
    kind = topology["devices"][0].partition(":")[0]
    logical = "logical " if record["settings"]["parallel_virtual_devices"] else ""
    return f"{count} {logical}{kind}{'s' if count != 1 else ''}"


def topology(record: dict[str, Any], noun: str = "images") -> str:
    """How the devices share the work."""
    devices, settings, choice = record["topology"], record["settings"], _choice(record)
    workers = devices["workers"]
    if workers * len(devices["devices"]) == 1:
        return f"One device, {devices['devices'][0]}.{choice}"
    where = f"{workers} processes" if workers > 1 else "one process"
    text = f"{grid_text(record)} on {devices_text(record)} in {where}"
    text = text[0].upper() + text[1:]
    text += f": batches of {number(settings['train_batch_size'])} {noun}"
    if devices["stages"] > 1:
        text += (
            f", {settings['parallel_microbatches']} microbatches per replica, "
            f"schedule {settings['parallel_microbatch_schedule']}"
        )
    return f"{text}. {strategy.find(devices['strategy']).fidelity}{choice}"


def _choice(record: dict[str, Any]) -> str:
    """A sentence on the choice of ``parallel.strategy: auto``; empty if the settings name one."""
    entry = record.get("search")
    return f" {sentence(SearchResult.of_record(entry))}." if entry else ""


def unprofiled(record: dict[str, Any], command: str) -> str:
    """Why there is no timeline, and a command that records one.

    Args:
        command: command line of the run; may be empty.
    """
    step = record["settings"]["parallel_timeline_step"]
    run = command or "stagecraft run --config run.yaml (with the settings below)"
    missing = [option for option in ("--fresh", "--from Trainer") if option not in run]
    retrain = " ".join([run, *missing])
    if not step:
        step = min(_PROFILED, record["steps"])
        return f"No step was profiled. To record a timeline: {retrain} --timeline {step}"
    return f"An earlier attempt ran step {number(step)}. To record its timeline: {retrain}"


def trained(training: Training, noun: str = "images") -> str:
    """Model, steps, initial and exported weights."""
    record = training.record
    text = (
        f"{record['settings']['train_model']}, {number(record['steps'])} steps of "
        f"{number(record['settings']['train_batch_size'])} {noun} with "
        f"{record['settings']['train_optimizer']}."
    )
    if start := record.get("start"):
        text += f" {start['note']}"
    if loaded := record.get("initial_weights"):
        text += (
            f" {number(loaded['variables'])} of {number(loaded['total'])} variables were "
            f"initialized from {loaded['file']}."
        )
        if loaded.get("carried"):
            text += f" Rows were carried over by token: {', '.join(loaded['carried'])}."
        for path, counts in loaded.get("rows", {}).items():
            ways = ", ".join(f"{number(count)} {way}" for way, count in counts.items())
            text += f" Rows of {path}: {ways}."
        if rescaled := loaded.get("rescaled"):
            text += f" Numbers have other scales than before: {'; '.join(rescaled)}."
        if loaded.get("compared") is False:
            text += (
                " The Transform graph of these weights is unknown, so their inputs may mean "
                "something else."
            )
    if best := record["best"]:
        loss = f"loss {best['loss']:.4f}"
        values = ", ".join(
            f"{name.replace('_', ' ')} {metric(name, value)}"
            for name, value in metrics_of(best).items()
        )
        text += (
            f" The exported weights are those after step {number(best['step'])}, the best on the "
            f"split val: {values or loss}."
        )
        by_loss = record.get("chosen_by") == "loss"
        undefined = [name for name, value in metrics_of(best).items() if math.isnan(value)]
        if undefined:
            verb = "is" if len(undefined) == 1 else "are"
            text += f" {' and '.join(map(title, undefined))} {verb} undefined for this split"
            text += ", so the least loss chose the step." if by_loss else "."
    if record["resumed_from"] == record["steps"]:
        text += (
            " An earlier run trained all steps, on its own topology; this run trained none. To "
            "train again: stagecraft run --fresh --from Trainer"
        )
    elif record["resumed_from"]:
        text += (
            f" The training resumed from the checkpoint of step {number(record['resumed_from'])}."
        )
    return text


def curves_text(record: dict[str, Any], sections: Sequence[str] = ()) -> str:
    """The meaning of the curves train and val, and why they differ for the same weights.

    Args:
        sections: of the report.
    """

    def setting(name: str) -> Any:
        return TrainingSettings.parsed(name, record["settings"].get(name))

    parts = {
        "label smoothing": setting("train_label_smoothing"),
        "class weights": (setting("task_args") or {}).get("class_weights"),
        "weights of spans": setting("train_window_weights"),
        "augmentation": AUGMENTATION in sections and setting("train_augment"),
    }
    of_training = ", ".join(["dropout", *(name for name, value in parts.items() if value)])
    text = (
        f"Train: the mean over the steps since the point before, with {of_training}. Val: the mean "
        f"over the split val after a step, without {'these' if ', ' in of_training else 'it'}"
    )
    if setting("train_ema_decay") or setting("train_lookahead"):
        text += ", with averaged weights"
    return f"{text}. So both curves may differ for the same weights."


def idle_text(training: Training) -> str:
    """The measured and the predicted pipeline bubble."""
    timeline, plan = training.timeline or {}, training.record["plan"]
    text = (
        f"{1e3 * timeline['seconds']:,.0f} ms. Stages were idle for {percent(timeline['idle'])} of "
        "the time between the first and the last pass. Stages of equal cost would be idle for "
        f"{percent(timeline['bubble'])}"
    )
    return f"{text}, the planned stages for {percent(plan['idle'])}." if plan else f"{text}."


def options(training: Training) -> list[tuple[str, str, bool]]:
    """Name and value of all settings of the training, and whether it differs from the default."""
    default = TrainingSettings().flat()
    return [
        (name.replace("_", ".", 1), str(value), value != default.get(name))
        for name, value in training.record["settings"].items()
    ]
