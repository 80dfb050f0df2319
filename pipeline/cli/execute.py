"""What ``stagecraft run`` does: check, run, show, sum up."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import IO

from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.cli import command_line, console, result
from stagecraft.pipeline.cli.options import data_override
from stagecraft.pipeline.cli.state import RunState
from stagecraft.pipeline.local import layout, nodes
from stagecraft.pipeline.local.events import Event
from stagecraft.pipeline.local.spec import RunSpec
from stagecraft.pipeline.local.supervisor import Outcome, open_log, supervise
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.pipeline.settings.overrides import Override
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import cluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft run``, as given."""

    config: str
    overrides: tuple[str | Override, ...]
    data: str | None
    output: pathlib.Path | None
    runner: str
    from_node: str | None
    to_node: str | None
    fresh: bool
    require_blessing: bool
    as_json: bool


def execute(request: Request) -> int:
    """Runs the pipeline and shows it; the command's exit code."""
    started = time.monotonic()
    state = RunState(nodes.NODES)
    try:
        settings = _settings(request)
        output = request.output or pathlib.Path("runs") / settings.name
        _check_output(output)
        log = _open_log(output)
    except (SettingsError, UserError) as error:
        if request.as_json:
            nothing = Outcome("failed")
            console.say_json(result.as_json(None, state, nothing, 0.0, request.output, str(error)))
        console.error(str(error))
        return 1

    log_path = pathlib.Path(log.name)
    console.rows([("output", str(output)), ("log", str(log_path))], stderr=request.as_json)
    spec = RunSpec(
        settings=settings,
        output=output.absolute(),
        runner=request.runner,
        from_node=request.from_node,
        to_node=request.to_node,
        fresh=request.fresh,
        command=_command(request, request.from_node, fresh=request.fresh),
    )
    outcome = _follow(spec, log, state, stderr=request.as_json)
    seconds = time.monotonic() - started

    problem = result.failure(state, outcome, request.require_blessing, _goes_on(request, state))
    if outcome.status == "ok":
        found = result.as_rows(settings, state, outcome, seconds, log_path)
        console.rows(found, stderr=request.as_json)
    if problem:
        in_log = outcome.status in ("failed", "died")
        console.error(f"{problem}\nlog: {log_path}" if in_log else problem)
    if request.as_json:
        console.say_json(result.as_json(settings, state, outcome, seconds, output, problem))
    if outcome.status == "interrupted":
        return 128 + outcome.signal
    return 1 if problem else 0


def _command(request: Request, from_node: str | None, *, fresh: bool) -> str:
    return command_line.text(
        config=request.config,
        data=request.data,
        overrides=request.overrides,
        output=request.output,
        runner=request.runner,
        from_node=from_node,
        to_node=request.to_node,
        fresh=fresh,
    )


def _goes_on(request: Request, state: RunState) -> str:
    """The command that goes on from what a run has finished that was interrupted.

    Once the run has begun, that is without ``--fresh``, which would forget what is finished, and
    without ``--from`` a step that is done.
    """
    if state.run_id is None:
        return _command(request, request.from_node, fresh=request.fresh)
    first = state.nodes.get(request.from_node or "")
    return _command(
        request, None if first and first.state == "done" else request.from_node, fresh=False
    )


def _settings(request: Request) -> PipelineSettings:
    """Everything that can be refused before anything starts is refused here."""
    settings = load(request.config, (*request.overrides, *data_override(request.data)))
    asked = [name for name in (request.from_node, request.to_node) if name]
    there = nodes.names(parity=settings.parity.enabled, report=settings.report.enabled)
    nodes.check(asked, there)
    if request.from_node and request.to_node:
        nodes.check_order(request.from_node, request.to_node, there)
    if nodes.between(nodes.EXAMPLE_GEN, there, request.from_node, request.to_node):
        early_checks.check_data(settings)
    early_checks.check_files(settings)
    if nodes.between(nodes.TRAINER, there, request.from_node, request.to_node):
        cluster.check(settings.parallel)
    return settings


def _check_output(output: pathlib.Path) -> None:
    """Refuses what earlier runs left, where a run cannot build on it.

    Raises:
        UserError: names the file or folder.
    """
    from stagecraft.components.metadata import file, outputs  # and ML Metadata, half a second

    metadata_db = layout.metadata_db(output)
    file.check(metadata_db)
    outputs.check_known(metadata_db, layout.pipeline_root(output))


def _open_log(output: pathlib.Path) -> IO[bytes]:
    try:
        return open_log(layout.logs(output))
    except OSError as error:
        raise UserError(
            f"{output}: cannot be written ({error.strerror}: {error.filename}); give --output a "
            "folder that can"
        ) from error


def _follow(spec: RunSpec, log: IO[bytes], state: RunState, *, stderr: bool) -> Outcome:
    with log, console.following(state, stderr=stderr, starts=True) as show:

        def on_event(event: Event) -> None:
            state.apply(event)
            show(event)

        outcome = supervise(spec, log, on_event)
        state.stop("interrupted" if outcome.status == "interrupted" else "failed")
    return outcome
