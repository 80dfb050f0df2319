"""The executor of TrainingReport: reads the artifacts once, and writes all outputs."""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from stagecraft.components.evaluator.evaluation import ACCURACY, MONITOR
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.components.report import artifacts
from stagecraft.components.report.collect import collect
from stagecraft.components.report.pages import model_card


class Executor(base_executor.BaseExecutor):
    """Writes the report; inputs, outputs and properties are the component's."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the class."""
        manifest.check(input_dict)
        data = collect(
            {role: inputs[0] for role, inputs in input_dict.items() if inputs},
            pipeline=exec_properties["pipeline_name"],
            run_id=(self._context.pipeline_run_id if self._context else None) or "",
            metadata_db=exec_properties["metadata_db"],
            settings=exec_properties["settings"],
        )
        from stagecraft.components.report.pages import page  # and matplotlib, which takes a second

        outputs = {key: artifact_utils.get_single_instance(output_dict[key]) for key in output_dict}
        for key, name, text in (
            ("report", artifacts.REPORT, page.render(data)),
            ("summary", artifacts.SUMMARY, page.summary(data)),
        ):
            _write(outputs[key].uri, {name: text})
            outputs[key].set_string_custom_property(artifacts.FILE, name)
        for name, value in artifacts.metrics(data.quality, data.training).items():
            outputs["metrics"].set_float_custom_property(name, float(value))
        if data.quality and data.quality.monitor != ACCURACY:
            outputs["metrics"].set_string_custom_property(MONITOR, data.quality.monitor)
        if data.quality and data.quality.confusion:
            outputs["classification_metrics"].set_json_value_custom_property(
                "confusionMatrix", artifacts.confusion_matrix(data.quality)
            )
        card = model_card.as_json(data)
        files = {
            model_card.JSON: json.dumps(card, indent=1, ensure_ascii=False) + "\n",
            model_card.MARKDOWN: page.card(data, card),
        }
        _write(outputs["model_card"].uri, files)
        outputs["model_card"].set_string_custom_property(artifacts.FILE, model_card.MARKDOWN)
        if data.pushed_to and fileio.exists(data.pushed_to):
            _write(data.pushed_to, files)


def _write(folder: str, files: dict[str, str]) -> None:
    fileio.makedirs(folder)
    for name, text in files.items():
        join = posixpath.join if "://" in folder else os.path.join
        with fileio.open(join(folder, name), "w") as file:
            file.write(text)
