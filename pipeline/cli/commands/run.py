"""``stagecraft run``."""

from __future__ import annotations

import pathlib
import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.components.example_gen.spans import Span
    from stagecraft.pipeline.cli.terminal.run_view import RunState
    from stagecraft.pipeline.local.span_runs import SpanRuns
    from stagecraft.pipeline.local.supervisor import Outcome
    from stagecraft.pipeline.settings import PipelineSettings
    from stagecraft.pipeline.settings.overrides import Override

_SHOWN = 10  # missing spans that the screen names

_MAY_BE_SECRET = ("kubeflow", "beam")
"""Sections whose values may hold a password: the command line shows only their names."""


def _failure(params: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a run that did not start."""
    from stagecraft.pipeline.cli.terminal import run_result
    from stagecraft.pipeline.cli.terminal.run_view import RunState
    from stagecraft.pipeline.local import nodes
    from stagecraft.pipeline.local.supervisor import Outcome

    state = RunState(nodes.by_default())
    return run_result.as_json(None, state, Outcome("failed"), 0.0, params["output"], None)


@click.command(
    cls=Command, quiet=False, failure=_failure, short_help="Run the pipeline and show its progress."
)
@options.settings_options
@options.data_option
@options.output_option
@click.option(
    "--runner",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="The TFX runner: LocalDagRunner or BeamDagRunner.",
)
@click.option(
    "--from",
    "from_node",
    metavar="COMPONENT",
    help="Start at this component, even if its result is cached.",
)
@click.option("--to", "to_node", metavar="COMPONENT", help="Stop after this component.")
@click.option(
    "--spans",
    "span_range",
    metavar="FIRST:LAST",
    help="Run each span of data.source in this range, such as 1:30 or 2026-11-01:2026-11-30, in "
    "order, with a line for each. Spans whose run is complete are left out. Stops at the first "
    "failure. With --to AnomalyGate, it only reads and checks them.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Delete the checkpoints in the output folder, so that the training starts at step 0.",
)
@click.option(
    "--require-blessing", is_flag=True, help="Fail if the Evaluator does not bless the model."
)
@click.option(
    "--timeline",
    type=int,
    metavar="STEP",
    help="Record the passes of each stage in this step, with parallel.strategy: grid. Same as "
    "--set parallel.timeline_step=STEP.",
)
@click.option(
    "--profile",
    metavar="FIRST:LAST",
    help="Write a TensorFlow profile of these steps for TensorBoard. Same as --set "
    "parallel.profile_steps=FIRST:LAST.",
)
@options.json_option
def run(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    output: pathlib.Path | None,
    runner: str,
    from_node: str | None,
    to_node: str | None,
    span_range: str | None,
    fresh: bool,
    require_blessing: bool,
    timeline: int | None,
    profile: str | None,
    as_json: bool,
) -> int:
    """Run the pipeline from data to pushed model, and show its progress.

    A run with the same output folder reuses the results of all components whose inputs did not
    change. Ctrl-C leaves no incomplete results. After Ctrl-C, the command prints how to resume the
    run.

    \b
    stagecraft run
    stagecraft run --config cifar10 --data ~/cifar-10-binary.tar.gz --output runs/first
    stagecraft run --set train.model=resnet20 --set train.epochs=20
    stagecraft run --from Trainer
    stagecraft run --config mine.yaml --spans 1:30

    Exit code: 0 if the run finished, blessed or not (see --require-blessing); 1 if it failed;
    130 after Ctrl-C.
    """
    started = time.monotonic()
    from stagecraft.pipeline.cli.terminal import run_result  # --help needs none of it
    from stagecraft.pipeline.cli.terminal.run_view import RunState, run_view
    from stagecraft.pipeline.local import lock, nodes
    from stagecraft.pipeline.local.protocol import RunSpec
    from stagecraft.pipeline.local.supervisor import open_log, supervise

    if output is not None:
        lock.check(output)  # before the settings, which may import the user's modules
    state = RunState(nodes.by_default())
    asked: dict[str, Any] = {
        "config": config,
        "data": data,
        "overrides": (
            *overrides,
            *options.override("--timeline", "parallel.timeline_step", timeline),
            *options.override("--profile", "parallel.profile_steps", profile),
        ),
        "output": output,
        "runner": runner,
        "from_node": from_node,
        "to_node": to_node,
        "fresh": fresh,
        "span_range": span_range,
        "require_blessing": require_blessing,
        "as_json": as_json,
    }
    # With --spans, a fixed span does not matter, and may not exist.
    newest = () if span_range is None else ("data.span=latest",)
    settings = options.load_settings(config, (*asked["overrides"], *newest), data)
    if span_range is not None:
        _check_alone({"--from": from_node, "--fresh": fresh})
    _check(settings, from_node, to_node, data=span_range is None)
    output = output or pathlib.Path("runs") / settings.name
    check_output(settings, output)
    if span_range is not None:
        return _run_spans(asked, settings, output)
    log = open_log(output)
    log_path = pathlib.Path(log.name)
    about = [("config", config), ("output", str(output)), ("log", str(log_path))]
    console.fields(about, stderr=as_json)
    spec = RunSpec(
        settings=settings,
        output=output.absolute(),
        runner=runner,
        from_node=from_node,
        to_node=to_node,
        fresh=fresh,
        command=run_command(**asked),
    )
    with log, run_view(state, stderr=as_json, starts=True) as on_event:
        outcome = supervise(spec, log, on_event)
        state.stop("interrupted" if outcome.status == "interrupted" else "failed")
    seconds = time.monotonic() - started

    problem = run_result.failure(state, outcome, require_blessing, _resume_command(asked, state))
    if outcome.status == "ok":
        window = _window(settings, output, asked, outcome)
        lines = run_result.as_fields(settings, state, outcome, seconds, log_path, window)
        console.fields(lines, stderr=as_json)
    if problem:
        in_log = outcome.status in ("failed", "died")
        console.error(f"{problem}\nlog: {log_path}" if in_log else problem)
    if as_json:
        console.say_json(run_result.as_json(settings, state, outcome, seconds, output, problem))
    if outcome.status == "interrupted":
        return 128 + outcome.signal
    return 1 if problem else 0


def _check_alone(others: dict[str, Any]) -> None:
    """Refuses options that mean one run."""
    for option, value in others.items():
        if value:
            raise UserError(
                f"{option}: is for one run, and --spans makes several; use one of the two",
                setting=option,
                value=value,
                suggestion=f"{option} without --spans",
            )


def _run_spans(asked: dict[str, Any], settings: PipelineSettings, output: pathlib.Path) -> int:
    """Runs the spans of a range that have no complete run yet, until one fails."""
    from stagecraft.pipeline.cli.terminal import span_lines
    from stagecraft.pipeline.local.span_runs import SpanRuns
    from stagecraft.pipeline.local.supervisor import open_log

    runs = SpanRuns(settings, output, asked["runner"], asked["to_node"])
    runs.check()
    found, missing = runs.between(asked["span_range"])
    as_json, last = asked["as_json"], found[-1].name
    console.fields(
        [("output", str(output)), ("spans", f"{len(found)}, {found[0].name} to {last}")],
        stderr=as_json,
    )
    if missing:
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        console.say(f"missing: {', '.join(missing[:_SHOWN])}{more}", stderr=as_json)
    completed = runs.completed(found, asked["to_node"])
    _warn_of_older([each for each in found if each.number not in completed], runs, asked)
    ended: list[dict[str, Any]] = []
    code, problem = 0, None
    for index, span in enumerate(found):
        if done := completed.get(span.number):
            console.say(f"{span.name}: complete, run {done.partition('.')[0]}", stderr=as_json)
            ended.append({"span": {"span": span.number, "name": span.name}, "completed_by": done})
            continue
        overrides = (*asked["overrides"], f"data.span={span.name}")
        log = open_log(output)
        line = span_lines.run(
            runs,
            span,
            log,
            to_node=asked["to_node"],
            command=run_command(**asked | {"overrides": overrides, "span_range": None}),
            require_blessing=asked["require_blessing"],
        )
        console.say(line.text, stderr=as_json)
        ended.append(line.fields)
        if line.problem is not None:
            interrupted = line.outcome.status == "interrupted"
            code = 128 + line.outcome.signal if interrupted else 1
            rests = [("go on with", span)]
            if not interrupted:  # the same span may fail again
                rests += [("without this span", each) for each in found[index + 1 : index + 2]]
            ways = [
                f"{how}: "
                + run_command(**asked | {"span_range": span_lines.span_range(first.name, last)})
                for how, first in rests
            ]
            problem = "; ".join([f"stopped at the span {span.name}", f"log: {log.name}", *ways])
            console.error(problem)
            break
    if as_json:
        console.say_json({"spans": ended, **({"error": problem} if problem else {})})
    return code


def _warn_of_older(due: list[Span], runs: SpanRuns, asked: dict[str, Any]) -> None:
    """Says that models of older spans take the place of the one that is served."""
    from stagecraft.pipeline.local import nodes
    from stagecraft.pipeline.local.span_runs import GATE

    if not due or not nodes.between("Pusher", nodes.of(runs.settings), None, asked["to_node"]):
        return
    served = runs.pushed()
    if served and due[0].number < int(served["span"]):
        reading = run_command(**asked | {"to_node": GATE})
        console.warning(
            f"The model of the span {served['name']} was pushed; models of older spans will be "
            f"pushed on top of it. To only read the spans: {reading}"
        )


def _window(
    settings: PipelineSettings, output: pathlib.Path, asked: dict[str, Any], outcome: Outcome
) -> str:
    """The window of a run in words; empty without one."""
    from stagecraft.pipeline.cli.terminal import span_lines
    from stagecraft.pipeline.local.span_runs import GATE, SpanRuns

    if not outcome.report.get("window"):
        return ""
    others = {"from_node": None, "to_node": GATE, "fresh": False, "require_blessing": False}
    return span_lines.window(
        SpanRuns(settings, output),
        outcome.report["window"],
        lambda these: run_command(**asked | others | {"span_range": these}),
    )


def run_command(
    *,
    config: str = options.PRESET,
    data: str | None = None,
    overrides: tuple[str | Override, ...] = (),
    output: pathlib.Path | None = None,
    runner: str = "local",
    from_node: str | None = None,
    to_node: str | None = None,
    fresh: bool = False,
    span_range: str | None = None,
    require_blessing: bool = False,
    as_json: bool = False,
) -> str:
    """The command line of a run, with the options that differ from the defaults."""
    words = ["stagecraft", "run"]
    if not config == options.default_config() == options.PRESET:
        words += ["--config", config]
    if data is not None:
        words += ["--data", data]
    if output is not None:
        words += ["--output", str(output)]
    for override in overrides:
        words += _override(override)
    if runner != "local":
        words += ["--runner", runner]
    if fresh:
        words.append("--fresh")
    for option, value in (("--from", from_node), ("--to", to_node), ("--spans", span_range)):
        if value:
            words += [option, value]
    if require_blessing:
        words.append("--require-blessing")
    if as_json:
        words.append("--json")
    return shlex.join(words)


def _override(override: str | Override) -> list[str]:
    if not isinstance(override, str):
        return override.text.split(" ", 1)
    key, _, _ = override.partition("=")
    if key.strip().partition(".")[0] in _MAY_BE_SECRET:
        return ["--set", f"{key}={secrets.LEFT_OUT}"]
    return ["--set", secrets.redact(override)]


def _resume_command(asked: dict[str, Any], state: RunState) -> str:
    """The command that resumes an interrupted run.

    Once the run has begun, the command has no ``--fresh``, which would delete the checkpoints, and
    no ``--from`` a component that is done.
    """
    if state.run_id is not None:
        first = state.nodes.get(asked["from_node"] or "")
        from_node = None if first and first.state == "done" else asked["from_node"]
        asked = asked | {"fresh": False, "from_node": from_node}
    return run_command(**asked)


def _check(
    settings: PipelineSettings, from_node: str | None, to_node: str | None, *, data: bool
) -> None:
    """Refuses everything that can be refused before anything starts.

    Args:
        data: whether to look at the data, too.
    """
    from stagecraft.pipeline.checks import early_checks
    from stagecraft.pipeline.local import nodes
    from stagecraft.trainer_module.parallel import cluster

    all_nodes = nodes.of(settings)
    nodes.check([name for name in (from_node, to_node) if name], all_nodes)
    if from_node and to_node:
        nodes.check_order(from_node, to_node, all_nodes)
    if data and nodes.between(all_nodes[0], all_nodes, from_node, to_node):
        early_checks.check_data(settings)
    settings.beam.check_files()
    early_checks.check_files(settings)
    if nodes.between(nodes.TRAINER, all_nodes, from_node, to_node):
        cluster.check(settings.parallel)


def check_output(settings: PipelineSettings, output: pathlib.Path) -> None:
    """Refuses an output folder that is in use, is another pipeline's, or lacks its metadata."""
    from stagecraft.components.metadata import file, outputs  # imports ML Metadata: half a second
    from stagecraft.pipeline.local import layout, lock, ownership

    lock.check(output)
    metadata_db = layout.metadata_db(output)
    file.check(metadata_db)
    outputs.check_known(metadata_db, layout.pipeline_root(output))
    ownership.check(settings, output)
