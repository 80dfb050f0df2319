"""What can be refused before TensorFlow and TFX are imported, and before a run is recorded.

The steps of a run check the same again, and more: data and files may change meanwhile.
"""

from __future__ import annotations

import os
import pathlib

from stagecraft.components.fingerprints.code_fingerprint import check_exists
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.initial_weights import source as initial_weights


def check_files(settings: PipelineSettings) -> None:
    """Refuses a pipeline that could not be built here.

    Raises:
        UserError: there is no such schema, or no such model's module.
    """
    check_schema(settings)
    check_model(settings)


def check_data(settings: PipelineSettings) -> None:
    """Refuses a path of this machine that is no data set.

    Raises:
        UserError: there is nothing, or something else.
    """
    source = settings.data.source
    if source in ("sample", "download") or "://" in source:
        return
    path = os.path.expanduser(source)
    try:
        there = os.path.exists(path)
    except ValueError:  # a null character
        there = False
    if not there:
        raise UserError(
            f"{source}: no such file or folder; data.source (--data) is an archive (.tar.gz), a "
            "folder with its files, sample or download"
        )
    from stagecraft.components.example_gen.archives import archive  # and numpy

    archive.check_kind(path)


def check_schema(settings: PipelineSettings) -> None:
    """Refuses a schema's path of this machine that holds no text.

    Raises:
        UserError: it cannot be read.
    """
    given = settings.data.schema_file
    if given is None or "://" in given:
        return
    try:
        pathlib.Path(given).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "expected text, found bytes"
    except ValueError as error:
        reason = str(error)
    else:
        return
    raise UserError(
        f"data.schema_file: {given}: {reason}; give the path of a TFDV schema (text proto)"
    )


def check_model(settings: PipelineSettings) -> None:
    """Refuses a model of the user's, or weights to begin with, that do not exist.

    Raises:
        UserError: names what is missing, and where it was looked for.
    """
    if settings.train.initial_weights:
        initial_weights.find(settings.train.initial_weights)
    model = settings.train.model
    if ":" not in model:
        return
    try:
        check_exists(model)
    except UserError as error:
        raise UserError(f"train.model: {error}") from None
