"""The results of earlier models, each on the span that it was evaluated on, from ML Metadata."""

from __future__ import annotations

import logging
import os

from ml_metadata.metadata_store import MetadataStore
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import file, run_metadata
from stagecraft.components.report.report_data import SpanResult

_log = logging.getLogger(__name__)

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
    """See :func:`read`. Leaves out spans of another source, and evaluations that are damaged."""
    kind = standard_artifacts.ModelEvaluation.TYPE_NAME
    source = _examples(store, evaluation_id).get(spans.PATTERNS)
    latest: dict[int, SpanResult] = {}
    unreadable = 0
    for context in store.get_contexts_by_artifact(evaluation_id):
        if context.type != "pipeline":
            continue
        found = [each for each in store.get_artifacts_by_context(context.id) if each.type == kind]
        for artifact in sorted(found, key=lambda each: -int(each.id)):
            read_from = _examples(store, artifact.id)
            span = int(read_from.get(spans.SPAN, -1))
            is_other = spans.NAME not in read_from or read_from.get(spans.PATTERNS) != source
            if is_other or span in latest or not fileio.exists(artifact.uri):
                continue
            try:
                metrics = read_evaluation(artifact.uri).metrics
            except Exception:  # each file of an evaluation has its own
                unreadable += 1
                continue
            latest[span] = SpanResult(str(read_from[spans.NAME]), metrics)
            if len(latest) == MOST:
                break
    if unreadable:
        _log.warning("%d earlier evaluations cannot be read, and are left out", unreadable)
    return [latest[span] for span in sorted(latest)]


def _examples(store: MetadataStore, evaluation_id: int) -> run_metadata.Properties:
    """Properties of the examples of an evaluation."""
    kind = standard_artifacts.Examples.TYPE_NAME
    ids = run_metadata.origin(store, evaluation_id, kind)
    return run_metadata.of_artifact(store.get_artifacts_by_id(ids)[0]) if ids else {}
