"""What ``stagecraft doctor`` does."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Protocol

from stagecraft.pipeline.cli import checks, console
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings
from stagecraft.schemas.errors import UserError

_NAME = "preflight"
"""Of the job that would be, which is never made."""


class Check(Protocol):
    """One line of the report: :class:`checks.Check`, or a row of the cluster's preflight."""

    @property
    def name(self) -> str:
        """What was looked at."""

    @property
    def found(self) -> str:
        """What is there."""

    @property
    def verdict(self) -> str:
        """``ok``, ``note`` or ``missing``."""

    @property
    def advice(self) -> str:
        """How to mend it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft doctor --cluster``, as given."""

    config: str
    overrides: tuple[str, ...]
    namespace: str
    context: str | None
    account: str | None
    as_json: bool


def look_here(as_json: bool) -> int:
    """At this machine; the command's exit code."""
    found = checks.all_checks(pathlib.Path.cwd())
    return _tell(found, as_json, "everything that a run needs is here")


def look_at_cluster(request: Request) -> int:
    """At a cluster; the command's exit code."""
    try:
        settings = load(request.config, request.overrides)
        rows = [_launcher(settings), *_rows(settings, request)]
    except (SettingsError, UserError) as error:
        if request.as_json:
            console.say_json({"ok": False, "error": str(error)})
        console.error(str(error))
        return 1
    return _tell(rows, request.as_json, "everything that a training needs is there")


def _rows(settings: PipelineSettings, request: Request) -> list[Check]:
    from stagecraft.components.kubernetes.api import connection  # and the client
    from stagecraft.components.kubernetes.preflight import preflight
    from stagecraft.pipeline.cli import rendering

    folder = settings.kubeflow.job.folder
    wanted = preflight.PlannedTraining(
        request=rendering.requested(
            settings,
            name=_NAME,
            namespace=request.namespace,
            folder=f"{folder.rstrip('/')}/{_NAME}",
        ),
        folder=folder,
        checkpoints=settings.kubeflow.checkpoints,
        default_image=KubeflowSettings().image,
        account=request.account,
    )
    return list(preflight.check_cluster(connection.connect(request.context), wanted))


def _launcher(settings: PipelineSettings) -> checks.Check:
    launcher = settings.parallel.launcher
    found = f"parallel.launcher: {launcher}"
    if launcher == "kubernetes":
        return checks.Check("launcher", found)
    advice = "no job of the cluster is started before it is set: parallel.launcher=kubernetes"
    return checks.Check("launcher", found, "note", advice)


def _tell(rows: Iterable[Check], as_json: bool, enough: str) -> int:
    found = []
    for row in rows:
        found.append(row)
        if not as_json:
            console.say(f"{row.verdict:<8}{f'{row.name} ':<12}{row.found}")
            if row.advice:
                console.say(f"{'':<20}{row.advice}")
    ok = not any(row.verdict == "missing" for row in found)
    if as_json:
        console.say_json({"ok": ok, "checks": {row.name: vars(row) for row in found}})
    elif ok:
        console.say(enough)
    return 0 if ok else 1
