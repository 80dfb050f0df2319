"""Digests of a span's files, of the schema and of the user's code.

The result of a run depends on them besides the settings, where a path may stay the same while the
content changes. Imports no TensorFlow.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.spans import Span
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint, files_digest
from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.data.tasks.task import Task


class SpanStates(NamedTuple):
    """Digests of what a run depends on; empty without spans on a local disk."""

    read: str = ""
    """For a run up to AnomalyGate: files, schema, and the code of the ExampleGen and the task."""

    whole: str = ""
    """For a whole run: the code of preprocessing and training, too."""

    def of(self, *, whole: bool) -> str:
        """One of them."""
        return self.whole if whole else self.read


class Inputs(NamedTuple):
    """Digests of the schema and of the code, which all spans have in common."""

    read: str
    whole: str

    @classmethod
    def of(cls, settings: PipelineSettings) -> Inputs:
        """Looks at both now."""
        data, task = settings.data, settings.task.found
        read = [data.example_gen, *task.code, _module(settings.task.name)]
        model = settings.train.model
        whole = [*read, data.preprocessing_fn, *registries.code(settings.flat())]
        whole += [model] if ":" in model and not hub.class_name(model) else []
        return cls(_content(data.schema_file) + _code(read), _code(whole) + _of_files(task))

    def states(self, span: Span) -> SpanStates:
        """Adds the files of a span, as they are now."""
        read = hashlib.sha256(f"{span.state()} {self.read}".encode()).hexdigest()
        return SpanStates(read, hashlib.sha256(f"{read} {self.whole}".encode()).hexdigest())


def of_run(settings: PipelineSettings) -> SpanStates:
    """The digests for the span that the settings choose."""
    data = settings.data
    if not data.has_spans or files.is_remote(data.source):
        return SpanStates()
    try:
        span = spans.find(early_checks.span_patterns(data), data.span)
    except spans.MissingSpanError:  # a partial run may read other data
        return SpanStates()
    return Inputs.of(settings).states(span)


def _module(name: str) -> str | None:
    """The module of ``module:object``; None: the name is that of an entry of Stagecraft."""
    module, colon, _ = name.partition(":")
    return module if colon else None


def _content(path: str | None) -> str:
    try:
        return pathlib.Path(path).read_text() if path and not files.is_remote(path) else ""
    except (OSError, ValueError):  # the run says so
        return ""


def _code(names: Iterable[str | None]) -> str:
    """A fingerprint of the user's code; that of Stagecraft and TFX takes seconds."""
    ours = ("stagecraft", "tfx")
    users = sorted({name for name in names if name and name.partition(".")[0] not in ours})
    try:
        return code_fingerprint(*users) if users else ""
    except UserError as error:  # such as a syntax error: the run says so, until it is another one
        return str(error)


def _of_files(task: Task) -> str:
    """A digest of the files that Transform's graph is made of, such as a vocabulary."""
    try:
        return files_digest(task.files) if task.files else ""
    except (OSError, UserError) as error:
        return str(error)
