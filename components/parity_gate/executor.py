"""The executor of ParityGate: compares, then writes the report or raises."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_transform as tft
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.fingerprints import training_properties
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.components.parity_gate import JSON, MARKDOWN
from stagecraft.schemas import features
from stagecraft.trainer_module.data import batch, input_data
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.parity.cases import Case
from stagecraft.trainer_module.parity.check import Check
from stagecraft.trainer_module.parity.report import ParityReport, Row

BATCHES = 8  # batches of the split train that the steps repeat


class Executor(base_executor.BaseExecutor):
    """Compares the topology with one device."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the component."""
        settings = training_properties.read(exec_properties, "ParityGate")
        training_properties.check_weights(exec_properties, settings)
        manifest.check(input_dict)
        # Kubeflow passes numbers as doubles.
        steps, size = (int(exec_properties[f"parity_{name}"]) for name in ("steps", "batch_size"))
        case = cases.configured(settings, steps=steps, batch_size=size)
        rows = [] if case is None else self._compare(case, input_dict, exec_properties)
        for row in rows:
            if not row.equal:
                raise SettingError(
                    "parallel.strategy",
                    settings.parallel.strategy,
                    f"does not compute the same as one device: {row.reason}",
                    "parallel.strategy: one_device, or disable the gate with parity.enabled: false",
                )
        _write(output_dict, rows)

    def _compare(
        self, case: Case, input_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> list[Row]:
        schema = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict["schema"]))
        split = exec_properties.get("compared_split") or features.TRAIN
        files = _files(input_dict, split)
        graph = tft.TFTransformOutput(artifact_utils.get_single_uri(input_dict["transform_graph"]))
        settings = input_data.fitted(case.settings.resolved(schema), files, graph)
        case = dataclasses.replace(case, settings=settings)
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            data = pathlib.Path(folder) / "data.npz"
            _save_batches(case, files, graph, data)
            check = Check(
                data,
                case.settings.task.found.model_arguments(schema),
                pathlib.Path(folder),
                steps=int(exec_properties["parity_steps"]),
                timeout_seconds=float(exec_properties["parity_timeout_seconds"]),
            )
            return list(check.rows([case]))


def _files(input_dict: Artifacts, split: str) -> list[str]:
    for examples in input_dict["examples"]:
        if split not in artifact_utils.decode_split_names(examples.split_names):
            problem = f"the examples have no split {split!r}"
            raise UserError(f"{examples.uri}: {problem}", file=examples.uri)
    folders = artifact_utils.get_split_uris(input_dict["examples"], split)
    return [os.path.join(folder, "*") for folder in folders]


def _save_batches(
    case: Case, files: Sequence[str], graph: tft.TFTransformOutput, path: pathlib.Path
) -> None:
    dataset = input_data.train_dataset(
        files,
        graph,
        case.settings.train,
        input_data.count_examples(files),
        task=case.settings.task.found,
    )
    whole = next(iter(dataset.unbatch().batch(BATCHES * case.settings.train.batch_size)))
    arrays = batch.to_arrays("inputs", whole.inputs) | batch.to_arrays("targets", whole.targets)
    np.savez(path, **arrays)


def _write(output_dict: Artifacts, rows: list[Row]) -> None:
    artifact = artifact_utils.get_single_instance(output_dict["report"])
    verdict = "equal" if rows else "one device: nothing to compare"
    artifact.set_int_custom_property("topologies", len(rows))
    artifact.set_string_custom_property("verdict", verdict)
    fileio.makedirs(artifact.uri)
    table = {"verdict": verdict, "topologies": [row.as_json() for row in rows]}
    text = ParityReport(tuple(rows)).markdown() if rows else f"{verdict}\n"
    for name, content in ((JSON, json.dumps(table, indent=2) + "\n"), (MARKDOWN, text)):
        with fileio.open(os.path.join(artifact.uri, name), "w") as file:
            file.write(content)
