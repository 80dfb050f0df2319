"""Finds settings whose secrets are plain text in a compiled pipeline or a job's manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stagecraft.common import secrets
from stagecraft.pipeline.settings import PipelineSettings


def names(settings: PipelineSettings) -> list[str]:
    """Settings that reach a step as plain text, such as ``kubeflow.every_step.env.HF_TOKEN``."""
    kubeflow = settings.kubeflow
    found = _of_env("kubeflow.every_step.env", kubeflow.every_step.env)
    for name, step in kubeflow.steps.items():
        found += _of_env(f"kubeflow.steps.{name}.env", step.env)
    found += _of_arguments("beam.args", settings.beam.args)
    return [*found, *_of_arguments("beam.unchecked_args", settings.beam.unchecked_args)]


def warning(settings: PipelineSettings, where: str) -> str | None:
    """A warning about such settings in ``where``, the output; None without one."""
    found = names(settings)
    if not found:
        return None
    return (
        f"{where} contains plain text that looks like a secret: {', '.join(found)}. Everybody who "
        "may see the pipeline can read this text. Put the secret into a Kubernetes Secret, and "
        "name this Secret in kubeflow.every_step.secrets."
    )


def _of_arguments(setting: str, arguments: Sequence[str]) -> Iterator[str]:
    hidden = secrets.redact_arguments(arguments)
    for index, (argument, shown) in enumerate(zip(arguments, hidden, strict=True)):
        if argument != shown:
            option = argument if argument.startswith("-") or not index else arguments[index - 1]
            yield f"{setting} {option.partition('=')[0]}"


def _of_env(prefix: str, env: Mapping[str, str]) -> list[str]:
    return [f"{prefix}.{name}" for name, value in env.items() if secrets.is_secret(name, value)]
