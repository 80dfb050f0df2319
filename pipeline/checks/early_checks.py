"""Checks without TensorFlow and TFX; the components of a run check the same again, and more."""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import spans
from stagecraft.components.fingerprints.code_fingerprint import check_exists
from stagecraft.pipeline.settings import DataSettings, PipelineSettings
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.data.tasks import mismatches
from stagecraft.trainer_module.models.initial_weights import source as initial_weights


def check_files(settings: PipelineSettings) -> None:
    """Refuses settings whose pipeline cannot be built on this machine."""
    check_schema(settings)
    check_code(settings)
    check_model(settings)


_OF_FILES = (
    "CsvExampleGen",
    "PackagedCsvExampleGen",
    "ParquetExampleGen",
    "AvroExampleGen",
    "WindowExampleGen",
    "ImportExampleGen",
)
"""ExampleGens that read the files of a folder, but not those of its subfolders."""


def _class_name(path: str) -> str:
    return re.split("[.:]", path)[-1]


def check_data(settings: PipelineSettings) -> None:
    """Refuses a local path that is no data set."""
    source, generator = settings.data.source, settings.data.generator(settings.task.found)
    if source in ("sample", "download") or "://" in source or source.startswith("package:"):
        return
    if settings.data.has_spans:
        check_spans(settings)
        return
    path = os.path.expanduser(source)
    try:
        exists = os.path.exists(path)
    except ValueError:  # a null character
        exists = False
    if not exists:
        use = (
            "the path of an archive (.tar.gz), the path of its extracted folder, 'sample', or "
            "'download'"
            if generator == "cifar"
            else "the path of the folder with the data"
        )
        raise UserError(
            f"data.source: {source}: no such file or folder; use {use}",
            setting="data.source",
            value=source,
            file=path,
        )
    if generator == "named" and _class_name(str(settings.data.example_gen)) in _OF_FILES:
        _check_names(settings, _first_file(path, settings.data.example_gen_args))
    if generator != "cifar":
        return
    from stagecraft.components.example_gen.archives import archive  # and numpy

    archive.check_kind(path)


def check_spans(settings: PipelineSettings) -> spans.Span:
    """The span to read.

    Raises:
        MissingSpanError: there is no such span.
        MismatchError: settings name columns that its table lacks.
    """
    patterns = span_patterns(settings.data)
    found = spans.find(patterns, settings.data.span)
    first = next((path for path in found.paths if os.path.isfile(path)), None)
    if first and settings.data.generator(settings.task.found) == "named":
        _check_names(settings, first)
    return found


def span_patterns(data: DataSettings) -> list[str]:
    """The patterns of local files or folders with spans: one, or one for each split."""
    source = os.path.expanduser(data.source)
    inputs = data.example_gen_args.get("input_config") or {}
    patterns = [str(each.get("pattern", "*")) for each in inputs.get("splits") or ()]
    if not spans.has(source):
        return [os.path.join(source, pattern) for pattern in patterns]
    if data.example_gen is None:
        return [source]
    folders = all(map(os.path.isdir, spans.find([source], data.span).paths))
    return [os.path.join(source, each) for each in patterns or ["*"]] if folders else [source]


def _check_names(settings: PipelineSettings, file: str) -> None:
    """Refuses settings that name columns which a table lacks.

    Raises:
        UserError: the file is no table.
        MismatchError: as said.
    """
    data, task = settings.data, settings.task.found
    names = _column_names(str(data.example_gen), file)
    if names is None:
        return
    known = {name: mismatches.Observed("") for name in names if name}
    wanted = {name: ("evaluate.slices", name) for name in settings.evaluate.slices}
    wanted |= {name: task.setting_of(name) for name in task.schema_features}
    absent = [
        mismatches.missing(setting, value, name, known)
        for name, (setting, value) in wanted.items()
        if name not in known
    ]
    if absent:
        raise mismatches.MismatchError(absent, file)


def _first_file(source: str, arguments: Mapping[str, Any]) -> str:
    """The first file that an ExampleGen reads.

    Raises:
        UserError: there is none, or the path has characters of patterns.
    """
    if found := [each for each in "*?[]{}" if each in source]:
        raise UserError(
            f"data.source: {source}: has {' '.join(found)}, which TFX takes for a pattern of "
            "files; rename the file or folder",
            setting="data.source",
            value=source,
            file=source,
            suggestion="a name without " + " ".join(found),
        )
    if os.path.isfile(source):
        return source
    splits = (arguments.get("input_config") or {}).get("splits") or [{"pattern": "*"}]
    pattern = os.path.join(source, str(splits[0].get("pattern", "*")))
    files = [path for path in sorted(glob.glob(pattern)) if os.path.isfile(path)]
    if not files:
        use = "a folder with files of data"
        raise UserError(
            f"data.source: {source}: no file has the name {pattern}; use {use}",
            setting="data.source",
            value=source,
            file=pattern,
            suggestion=use,
        )
    return files[0]


def _column_names(example_gen: str, file: str) -> list[str] | None:
    """The columns of a file; None: they are unknown.

    Raises:
        UserError: the file is of another kind.
    """
    name = _class_name(example_gen)
    if name == "ImportExampleGen":
        _check_records(file)
    if name in ("CsvExampleGen", "PackagedCsvExampleGen"):
        from stagecraft.components.example_gen.kinds import csv_rows

        return csv_rows.header(file)
    if name == "ParquetExampleGen":
        import pyarrow.parquet

        with contextlib.suppress(OSError, ValueError):  # ParquetExampleGen says it better
            return list(pyarrow.parquet.read_schema(file).names)
    return None


def _check_records(file: str) -> None:
    """Refuses a file that does not begin with the length of a record."""
    with open(file, "rb") as stream:
        start = stream.read(12)
    is_packed = start[:2] == b"\x1f\x8b"
    # tensorflow/core/lib/io/record_writer.h: length, its checksum, the record, its checksum.
    is_record = len(start) == 12 and int.from_bytes(start[:8], "little") + 16 <= os.path.getsize(
        file
    )
    if is_record or (is_packed and file.endswith(".gz")):
        return
    problem, use = "is no TFRecord file", "CsvExampleGen or ParquetExampleGen for other files"
    if is_packed:
        problem, use = "is compressed with gzip, but its name does not say so", f"{file}.gz"
    raise UserError(f"{file}: {problem}; use {use}", file=file, suggestion=use)


def check_schema(settings: PipelineSettings) -> None:
    """Refuses a local schema file that is no text file."""
    path = settings.data.schema_file
    if path is None or "://" in path:
        return
    try:
        pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "expected text, found bytes"
    except ValueError as error:
        reason = str(error)
    else:
        return
    raise UserError(
        f"data.schema_file: {path}: {reason}; use the path of a TFDV schema (text proto)",
        setting="data.schema_file",
        value=path,
        file=path,
    )


def check_code(settings: PipelineSettings) -> None:
    """Refuses an ExampleGen or a ``preprocessing_fn`` that do not exist."""
    for name in ("example_gen", "preprocessing_fn"):
        path = getattr(settings.data, name)
        if path is None:
            continue
        setting = f"data.{name}"
        try:
            check_exists(path)
        except UserError as error:
            raise UserError(f"{setting}: {error}", setting=setting, value=path) from None


def check_model(settings: PipelineSettings) -> None:
    """Refuses a user's model, or initial weights, that do not exist."""
    if weights := settings.train.from_files.initial_weights:
        initial_weights.find(weights)
    task, model = settings.task.found, settings.train.model
    _ = task.files  # refuses missing ones
    if ":" not in model:
        if task.sample_arguments is not None:
            registries.check_family(model, task.sample_arguments)
        return
    if hub.class_name(model):
        hub.check_class(model)
        return
    try:
        check_exists(model)
    except UserError as error:
        raise UserError(f"train.model: {error}", setting="train.model", value=model) from None
