"""Checks without TensorFlow and TFX; the components of a run check the same again, and more."""

from __future__ import annotations

import os
import pathlib

from stagecraft.common.errors import UserError
from stagecraft.components.fingerprints.code_fingerprint import check_exists
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.models.initial_weights import source as initial_weights


def check_files(settings: PipelineSettings) -> None:
    """Refuses settings whose pipeline cannot be built on this machine."""
    check_schema(settings)
    check_code(settings)
    check_model(settings)


def check_data(settings: PipelineSettings) -> None:
    """Refuses a local path that is no data set."""
    source, generator = settings.data.source, settings.data.generator(settings.task.found)
    if source in ("sample", "download") or "://" in source or source.startswith("package:"):
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
    if generator != "cifar":
        return
    from stagecraft.components.example_gen.archives import archive  # and numpy

    archive.check_kind(path)


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
    if settings.train.initial_weights:
        initial_weights.find(settings.train.initial_weights)
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
