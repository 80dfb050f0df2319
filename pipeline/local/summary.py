"""The results of nodes, from their artifacts: a figure for people, numbers for ``--json``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import COLUMNS, UNSEEN
from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    IMAGES,
    MONITOR,
    NOUN,
    UNDEFINED,
    Evaluation,
    short,
)
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.content import SKIPPED
from stagecraft.components.metadata import run_metadata
from stagecraft.components.pusher.already import ALREADY, lost, removed
from stagecraft.components.pusher.executor import REMOVED
from stagecraft.components.report.artifacts import REPORT
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN, EXAMPLE_GEN
from stagecraft.trainer_module.data.schema_reader import class_names
from stagecraft.trainer_module.training.monitoring.timeline import DATA, TRACE

Artifacts = Mapping[str, Sequence[Artifact]]


def figure(node_id: str, artifacts: Artifacts, *, has_blessed: bool = False) -> str:
    """One figure for the table, such as examples, anomalies or accuracy; may be empty.

    Args:
        has_blessed: whether an earlier run has blessed a model.
    """
    if node_id == nodes.LAST_STATISTICS:
        return "" if artifacts.get("earlier") else "no earlier data to compare with"
    if node_id == nodes.BASE_MODEL and not artifacts.get("model"):
        return "no earlier model, so the weights are random"
    if node_id == nodes.BASELINE and not artifacts.get("model"):
        return "no other blessed model" if has_blessed else "no blessed model yet"
    return FIGURES[node_id](artifacts) if node_id in FIGURES else ""


def _of_examples(artifacts: Artifacts) -> str:
    counts = example_counts(artifacts)
    skipped = artifacts["examples"][0].get_int_custom_property(SKIPPED)
    parts = [spans.words(told) for told in spans_of(artifacts)]
    parts += [f"{sum(counts.values()):,} examples"] if counts else []
    if counts and skipped:
        parts.append(f"{skipped:,} file{'s' if skipped > 1 else ''} skipped")
    return ", ".join(parts)


def _of_window(artifacts: Artifacts) -> str:
    read = _read_window(artifacts)
    if not read:
        return ""
    oldest, newest = int(read[0]["span"]), int(read[-1]["span"])
    return spans.window(read, newest - oldest + 1).words()


def _of_trainer(artifacts: Artifacts) -> str:
    model = artifacts["model"][0]
    if not model.has_custom_property("steps"):
        return "the run_fn wrote no record"
    monitor = model.get_string_custom_property(MONITOR) or ACCURACY
    best = _best(model, monitor)
    steps = model.get_int_custom_property("steps")
    if steps and steps == model.get_int_custom_property("resumed_from"):
        return f"an earlier run trained all {steps} steps, {best}"
    noun = model.get_string_custom_property(NOUN) or IMAGES
    loaded = model.get_int_custom_property("variables_loaded")
    initial = f"{loaded} of {model.get_int_custom_property('variables')} variables loaded, "
    return (
        f"{initial if loaded else ''}"
        f"{model.get_float_custom_property('images_per_second'):,.0f} {noun}/s, {best}"
    )


def _of_evaluator(artifacts: Artifacts) -> str:
    verdict = "blessed" if blessed(artifacts) else "not blessed"
    found = evaluation(artifacts)
    value = found.metrics.get(found.monitor)
    return verdict if value is None else f"{found.monitor} {short(value)}, {verdict}"


def _of_anomaly_gate(artifacts: Artifacts) -> str:
    anomalies = artifacts["anomalies"][0]
    found = f"{anomalies.get_int_custom_property('anomalies')} anomalies"
    unseen = anomalies.get_string_custom_property(UNSEEN)
    if changed := anomalies.get_string_custom_property(COLUMNS):
        found += f"; {changed}"
    return f"{found}; labels that only other splits than train have: {unseen}" if unseen else found


def _of_pusher(artifacts: Artifacts) -> str:
    if not (folder := pushed_to(artifacts)):
        return "not pushed"
    if already_pushed(artifacts):
        return f"already pushed as version {os.path.basename(folder)}"
    gone = len(removed_versions(artifacts))
    return "pushed" + (f", {gone} old version{'s' * (gone > 1)} removed" if gone else "")


FIGURES: Mapping[str, Callable[[Artifacts], str]] = {
    EXAMPLE_GEN: _of_examples,
    ANY_EXAMPLE_GEN: _of_examples,
    "AnomalyGate": _of_anomaly_gate,
    nodes.WINDOW: _of_window,
    "ParityGate": lambda artifacts: artifacts["report"][0].get_string_custom_property("verdict"),
    nodes.TRAINER: _of_trainer,
    nodes.BASE_MODEL: lambda artifacts: f"model {artifacts['model'][0].id}",
    nodes.BASELINE: lambda artifacts: f"model {artifacts['model'][0].id}",
    "Evaluator": _of_evaluator,
    "Pusher": _of_pusher,
    "TrainingReport": lambda artifacts: os.path.basename(page(artifacts)),
}
"""Node -> its figure."""


def _best(model: Artifact, monitor: str) -> str:
    """The metric of the exported step on the val split; if it is undefined, the one that chose."""
    if model.has_custom_property(f"val_{monitor}") or not model.has_custom_property("val_loss"):
        return f"val {monitor} {short(model.get_float_custom_property(f'val_{monitor}'))}"
    loss = short(model.get_float_custom_property("val_loss"))
    return f"val {monitor} {UNDEFINED} (undefined), best step by val loss {loss}"


def spans_of(artifacts: Artifacts) -> list[dict[str, int | str]]:
    """The spans, from artifacts of examples, the newest last; empty if the data have no spans."""
    properties = (each.mlmd_artifact.custom_properties for each in artifacts["examples"])
    return spans.told_of(map(run_metadata.values, properties))


def _read_window(artifacts: Artifacts) -> list[dict[str, int | str]]:
    """The spans of a window, and the versions that are there now; empty without spans."""
    properties = run_metadata.of_artifact(artifacts["examples"][0].mlmd_artifact)
    return spans.with_versions(spans_of(artifacts), properties)


def example_counts(artifacts: Artifacts) -> dict[str, int]:
    """Examples per split, from the ExampleGen's artifacts; empty if it records none."""
    examples = artifacts["examples"][0]
    return {
        split: examples.get_int_custom_property(f"count_{split}")
        for split in artifact_utils.decode_split_names(examples.split_names)
        if examples.has_custom_property(f"count_{split}")
    }


def _counted(artifacts: Artifacts) -> dict[str, int]:
    """Examples per split, from StatisticsGen's artifacts."""
    statistics, counts = artifacts["statistics"][0], {}
    for split in artifact_utils.decode_split_names(statistics.split_names):
        view = stats_artifact_utils.load_statistics(statistics, split)
        counts[split] = int(view.get_default_slice_or_die().proto().num_examples)
    return counts


def evaluation(artifacts: Artifacts, class_names: Sequence[str] = ()) -> Evaluation:
    """The Evaluator's results, from its artifacts; class names appear in their sentences."""
    return read_evaluation(artifacts["evaluation"][0].uri, class_names)


def blessed(artifacts: Artifacts) -> bool:
    """Whether the Evaluator blessed the model, from its artifacts."""
    return artifacts["blessing"][0].get_int_custom_property("blessed") == 1


def pushed_to(artifacts: Artifacts) -> str | None:
    """The folder of the pushed model, from the Pusher's artifacts; None if not pushed."""
    model = artifacts["pushed_model"][0]
    if not model.get_int_custom_property("pushed"):
        return None
    return str(model.get_string_custom_property("pushed_destination"))


def already_pushed(artifacts: Artifacts) -> bool:
    """Whether an earlier run pushed the same model, from the Pusher's artifacts."""
    return bool(artifacts["pushed_model"][0].get_int_custom_property(ALREADY))


def removed_versions(artifacts: Artifacts) -> list[int]:
    """The old versions that the Pusher removed, from its artifacts."""
    text = artifacts["pushed_model"][0].get_string_custom_property(REMOVED)
    return list(json.loads(text)) if text else []


def page(artifacts: Artifacts) -> str:
    """The file of the report about the run, from its artifacts."""
    return os.path.join(artifacts["report"][0].uri, REPORT)


def timeline(artifacts: Artifacts) -> dict[str, Any] | None:
    """The timeline of a step, from the Trainer's artifacts; None if there is none."""
    folder = artifacts["model_run"][0].uri
    path = os.path.join(folder, DATA)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        recorded = json.load(file)
    names = ("step", "seconds", "bubble", "idle", "shares")
    return {name: recorded[name] for name in names} | {"trace": os.path.join(folder, TRACE)}


def profile(artifacts: Artifacts) -> str | None:
    """The folder of a profile, from the Trainer's artifacts; None if there is none."""
    folder = str(artifacts["model_run"][0].uri)
    return folder if fileio.exists(os.path.join(folder, "plugins", "profile")) else None


def report(outputs: Mapping[str, Artifacts]) -> dict[str, Any]:
    """The part of ``--json`` that comes from artifacts, by node and output key."""
    fields: dict[str, Any] = {"examples": {}, "metrics": {}, "blessed": False, "pushed": None}
    if generator := nodes.example_gen(outputs):
        fields["examples"] = example_counts(outputs[generator])
        if read := spans_of(outputs[generator]):
            fields["span"] = read[0]
    if nodes.WINDOW in outputs and (read := _read_window(outputs[nodes.WINDOW])):
        fields["window"] = read
    if not fields["examples"] and "StatisticsGen" in outputs:
        fields["examples"] = _counted(outputs["StatisticsGen"])
    if "Trainer" in outputs and (recorded := timeline(outputs["Trainer"])):
        fields["timeline"] = recorded
    if "Trainer" in outputs and (folder := profile(outputs["Trainer"])):
        fields["profile"] = folder
    if "Evaluator" in outputs:
        schema = outputs.get("ImportSchema", outputs.get(nodes.SCHEMA_GEN, {})).get("schema")
        names: Sequence[str] = ()
        with contextlib.suppress(UserError):  # a task without classes
            names = class_names(io_utils.get_only_uri_in_dir(schema[0].uri)) if schema else ()
        result = evaluation(outputs["Evaluator"], names)
        fields["metrics"], fields["monitor"] = result.metrics, result.monitor
        fields["not_blessed_because"] = result.failures
        fields["comparison"] = result.comparison
        fields["blessed"] = blessed(outputs["Evaluator"])
    if "Pusher" in outputs:
        fields["pushed"] = pushed_to(outputs["Pusher"])
        with contextlib.suppress(UserError):  # a store that cannot be reached now
            # The Pusher of this run has just looked, unless the run skips it.
            model = outputs["Pusher"]["pushed_model"][0]
            if why := lost(model) or removed(model):
                fields |= {"pushed": None, "not_pushed_because": why}
        fields["already_pushed"] = already_pushed(outputs["Pusher"])
        fields["removed_versions"] = removed_versions(outputs["Pusher"])
    if "TrainingReport" in outputs:
        fields["report"] = page(outputs["TrainingReport"])
    return fields
