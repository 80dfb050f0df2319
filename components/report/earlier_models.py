"""The results of earlier models, each on the span that it was evaluated on, from ML Metadata."""

from __future__ import annotations

import os

from ml_metadata.metadata_store import MetadataStore
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import file, run_metadata
from stagecraft.components.report.report_data import SpanResult

MOST = 30
"""Spans that a report shows."""


def read(metadata_db: str, evaluation_id: int) -> list[SpanResult]:
    """The newest spans of a pipeline that have an evaluation, oldest first.

    Args:
        metadata_db: SQLite file of ML Metadata; empty: there is none.
        evaluation_id: of the artifact of this run, which tells the pipeline.
    """
    if not os.path.exists(metadata_db):
        return []
    return of_store(file.open_store(metadata_db), evaluation_id)


def of_store(store: MetadataStore, evaluation_id: int) -> list[SpanResult]:
    """See :func:`read`."""
    kind = standard_artifacts.ModelEvaluation.TYPE_NAME
    latest: dict[int, tuple[str, str]] = {}
    for context in store.get_contexts_by_artifact(evaluation_id):
        if context.type != "pipeline":
            continue
        found = [each for each in store.get_artifacts_by_context(context.id) if each.type == kind]
        for artifact in sorted(found, key=lambda each: -int(each.id)):
            read_from = run_metadata.origin(
                store, artifact.id, standard_artifacts.Examples.TYPE_NAME
            )
            for examples in store.get_artifacts_by_id(read_from):
                told = run_metadata.of_artifact(examples)
                if spans.NAME in told and fileio.exists(artifact.uri):
                    latest.setdefault(int(told[spans.SPAN]), (str(told[spans.NAME]), artifact.uri))
            if len(latest) == MOST:
                break
    return [
        SpanResult(name, read_evaluation(uri).metrics) for _, (name, uri) in sorted(latest.items())
    ]
