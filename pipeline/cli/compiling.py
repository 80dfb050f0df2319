"""What ``stagecraft compile`` does."""

from __future__ import annotations

import dataclasses
import pathlib

from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.options import data_override
from stagecraft.pipeline.kubeflow import document, visible_secrets
from stagecraft.pipeline.settings import SettingsError, load
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.initial_weights import source as initial_weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft compile``, as given."""

    config: str
    overrides: tuple[str, ...]
    data: str | None
    output: pathlib.Path | None


def run(request: Request) -> int:
    """Compiles; the command's exit code."""
    try:
        settings = load(request.config, (*request.overrides, *data_override(request.data or None)))
        early_checks.check_files(settings)
        output = request.output or pathlib.Path(f"{settings.name}.yaml")
        document.check_output(output)
        if settings.train.initial_weights:
            initial_weights.find(settings.train.initial_weights)
        from stagecraft.pipeline.kubeflow.compile import compile_pipeline
        from stagecraft.trainer_module.models import registry

        with registry.files_shared():
            compile_pipeline(settings, output)
            files = registry.files_read(settings.train.model)
    except (SettingsError, UserError) as error:
        console.error(str(error))
        return 1
    except OSError as error:
        console.error(f"{output}: cannot be written: {error.strerror or error}.")
        return 1
    if told := visible_secrets.warning(settings, str(output)):
        console.warning(told)
    console.rows(
        [
            ("written", str(output)),
            ("image", settings.kubeflow.image),
            ("pipeline root", settings.kubeflow.pipeline_root),
            *_needed(settings.train.initial_weights, files),
            ("try it here", f"stagecraft emulate {output}"),
        ]
    )
    return 0


def _needed(weights: str | None, files: list[str]) -> list[tuple[str, str]]:
    """Files that the steps read, and that the compiled pipeline does not hold."""
    found = []
    where = "the image or a volume needs it at this path, with this content"
    if weights:
        found.append(("initial weights", f"{weights}: {where}"))
    return found + [("the model reads", f"{file}: {where}") for file in files]
