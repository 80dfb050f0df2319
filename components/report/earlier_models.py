"""The results of earlier models, each on the span that it was evaluated on.

They come from ML Metadata. A step on Kubeflow cannot reach its store, so there, each report writes
its own result into a folder that all runs share: :func:`shared`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import posixpath
from collections.abc import Iterator, Mapping

from ml_metadata.metadata_store import MetadataStore
from tfx.dsl.io import fileio
from tfx.types import Artifact, standard_artifacts

from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import file, run_metadata
from stagecraft.components.object_store import filesystem
from stagecraft.components.report.report_data import SpanResult

_log = logging.getLogger(__name__)

MOST = 30
"""Spans that a report shows."""


_folder: str | None = None  # of the block shared()


@contextlib.contextmanager
def shared(folder: str) -> Iterator[None]:
    """In this block, results without ML Metadata come from a folder, and go into it."""
    global _folder
    before, _folder = _folder, folder
    try:
        yield
    finally:
        _folder = before


def read(
    metadata_db: str, evaluation: Artifact, examples: Artifact | None, metrics: Mapping[str, float]
) -> list[SpanResult]:
    """The newest spans of a pipeline that have an evaluation, oldest first.

    Args:
        metadata_db: SQLite file of ML Metadata; empty: there is none.
        evaluation: of this run; tells the pipeline.
        examples: of this run, with the custom properties of their span, for :func:`shared`.
        metrics: of this run's evaluation, for :func:`shared`.
    """
    if os.path.exists(metadata_db):
        return of_store(file.open_store(metadata_db), evaluation.id)
    if _folder is None or examples is None:
        return []
    return _of_folder(_folder, run_metadata.of_artifact(examples.mlmd_artifact), metrics)


def _of_folder(
    folder: str, examples: run_metadata.Properties, metrics: Mapping[str, float]
) -> list[SpanResult]:
    """Writes the result of this run, and reads the newest ones of the same source."""
    told = spans.told(examples)
    if not told:
        return []
    source = hashlib.sha256(str(examples.get(spans.PATTERNS)).encode()).hexdigest()[:16]
    text = json.dumps({"span": told["name"], "metrics": dict(metrics)})
    own = posixpath.join(folder, f"{told['span']:010d}-{source}.json")
    try:
        filesystem.write_atomically(own, text.encode())
        names = sorted(name for name in fileio.listdir(folder) if name.endswith(f"-{source}.json"))
    except Exception as error:  # each file system has its own; a report needs no curve
        _log.warning("%s: the results of earlier models cannot be read: %s", folder, error)
        return []
    found, unreadable = [], 0
    for name in names[-MOST:]:
        try:
            with fileio.open(posixpath.join(folder, name)) as opened:
                result = json.loads(opened.read())
            found.append(SpanResult(str(result["span"]), result["metrics"]))
        except Exception:  # a damaged file has others beside it
            unreadable += 1
    _tell_unreadable(unreadable)
    return found


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
    _tell_unreadable(unreadable)
    return [latest[span] for span in sorted(latest)]


def _tell_unreadable(count: int) -> None:
    if count:
        _log.warning("%d earlier evaluations cannot be read, and are left out", count)


def _examples(store: MetadataStore, evaluation_id: int) -> run_metadata.Properties:
    """Properties of the examples of an evaluation."""
    kind = standard_artifacts.Examples.TYPE_NAME
    ids = run_metadata.origin(store, evaluation_id, kind)
    return run_metadata.of_artifact(store.get_artifacts_by_id(ids)[0]) if ids else {}
