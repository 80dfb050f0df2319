"""Checks without TensorFlow and TFX; the components of a run check the same again, and more."""

from __future__ import annotations

import os
import pathlib

from stagecraft.components.fingerprints.code_fingerprint import check_exists
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.initial_weights import source as initial_weights


def check_files(settings: PipelineSettings) -> None:
    """Refuses settings whose pipeline cannot be built on this machine."""
    check_schema(settings)
    check_model(settings)


def check_data(settings: PipelineSettings) -> None:
    """Refuses a local path that is no data set."""
    source = settings.data.source
    if source in ("sample", "download") or "://" in source:
        return
    path = os.path.expanduser(source)
    try:
        exists = os.path.exists(path)
    except ValueError:  # a null character
        exists = False
    if not exists:
        raise UserError(
            f"data.source: {source}: no such file or folder; use the path of an archive "
            "(.tar.gz), the path of its extracted folder, 'sample', or 'download'",
            setting="data.source",
            value=source,
            file=path,
        )
    if settings.reads_cifar:
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


def check_model(settings: PipelineSettings) -> None:
    """Refuses a user's model, or initial weights, that do not exist."""
    if settings.train.initial_weights:
        initial_weights.find(settings.train.initial_weights)
    model = settings.train.model
    if ":" not in model:
        return
    try:
        check_exists(model)
    except UserError as error:
        raise UserError(f"train.model: {error}", setting="train.model", value=model) from None
