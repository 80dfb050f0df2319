"""The executor of TrainingReport: reads the artifacts once, writes what is made of them."""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from stagecraft.components.report import artifacts
from stagecraft.components.report.facts import Facts
from stagecraft.components.report.gather import gather
from stagecraft.components.report.pages import markdown, model_card

Artifacts = dict[str, list[types.Artifact]]


class Executor(base_executor.BaseExecutor):
    """See the component."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes the report.

        Args:
            input_dict: by role, as ``gather.ROLES`` has them; those that are optional may be empty.
            output_dict: ``report``, ``summary``, ``metrics``, ``classification_metrics``,
                ``model_card``.
            exec_properties: ``pipeline_name``, ``settings``, ``metadata_db``.

        Raises:
            UserError: the schema names no classes.
        """
        facts = gather(
            {role: given[0] for role, given in input_dict.items() if given},
            pipeline=exec_properties["pipeline_name"],
            run_id=(self._context.pipeline_run_id if self._context else None) or "",
            metadata_db=exec_properties["metadata_db"],
            settings=exec_properties["settings"],
        )
        from stagecraft.components.report.pages import page  # and matplotlib, which takes a second

        outputs = {key: artifact_utils.get_single_instance(output_dict[key]) for key in output_dict}
        _write(outputs["report"], {artifacts.REPORT: page.render(facts)})
        _write(outputs["summary"], {artifacts.SUMMARY: markdown.summary(facts)})
        _note_figures(outputs, facts)
        card = model_card.as_json(facts)
        files = {
            model_card.JSON: json.dumps(card, indent=1, ensure_ascii=False) + "\n",
            model_card.MARKDOWN: markdown.card(facts, card),
        }
        _write(outputs["model_card"], files)
        if facts.pushed_to and fileio.exists(facts.pushed_to):
            _write_files(facts.pushed_to, files)


def _write(artifact: types.Artifact, files: dict[str, str]) -> None:
    _write_files(artifact.uri, files)
    if len(files) == 1:
        artifact.set_string_custom_property(artifacts.FILE, next(iter(files)))


def _write_files(folder: str, files: dict[str, str]) -> None:
    fileio.makedirs(folder)
    for name, text in files.items():
        join = posixpath.join if "://" in folder else os.path.join
        with fileio.open(join(folder, name), "w") as file:
            file.write(text)


def _note_figures(outputs: dict[str, types.Artifact], facts: Facts) -> None:
    for name, value in artifacts.figures(facts.quality, facts.training).items():
        outputs["metrics"].set_float_custom_property(name, float(value))
    if facts.quality:
        outputs["classification_metrics"].set_json_value_custom_property(
            "confusionMatrix", artifacts.confusion_matrix(facts.quality)
        )
