"""``stagecraft history``."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import click

from stagecraft.common.errors import UserError
from stagecraft.components.evaluator.evaluation import ACCURACY
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console, past_run_text

if TYPE_CHECKING:
    from stagecraft.pipeline.history.past_run import PastRun

_HEADER = (
    *("RUN", "OUTPUT", "STATE", "DATA", "TOPOLOGY"),
    *("TIME", "{}", "BLESSED", "PUSHED", "SETTINGS"),
)


@click.command(cls=Command, short_help="List past runs and their results.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=pathlib.Path), metavar="[FOLDER]...")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="The maximum number of runs to list, newest first.",
)
@options.json_option
def history(folders: tuple[pathlib.Path, ...], limit: int, as_json: bool) -> None:
    """List past runs of this machine: data, topology, time, accuracy, blessed, pushed, settings.

    A second table lists the rollbacks of `stagecraft push --rollback`.

    FOLDER is a folder that `stagecraft run --output` wrote, or one that contains such folders.
    Default: runs. The newest run is first. SETTINGS lists the settings that differ from the preset.
    The preset is the one with the same name as the pipeline. If there is no such preset, SETTINGS
    lists those that differ from the defaults. The command does not disturb a current run.

    \b
    stagecraft history
    stagecraft history runs/quickstart --limit 5

    A run is `done`, `running`, `failed`, or `stopped` (by Ctrl-C or a machine failure). STATE also
    names the component that is running, failed or stopped.

    Exit code: 0; 1 if there is no run.
    """
    from stagecraft.pipeline.history import past_run, runs

    if not folders and not runs.RUNS.is_dir():
        raise UserError(
            f"there is no folder {runs.RUNS}/ here; run 'stagecraft run' first, or name a folder "
            "that contains outputs of runs",
            file=str(runs.RUNS),
        )
    recorded, problems = runs.find_all(folders or (runs.RUNS,))
    past_runs = [past_run.read(run) for run in recorded[:limit]]
    if not past_runs:
        where = ", ".join(map(str, folders or (runs.RUNS,)))
        raise UserError(
            f"{where}: this folder has no run yet; run 'stagecraft run' first", file=where
        )
    rolled_back = runs.rolled_back({run.output: None for run in recorded})
    for problem in problems:
        console.say(f"Left out: {problem}", stderr=True)
    if as_json:
        rollbacks = [{"output": str(output), **each._asdict()} for output, each in rolled_back]
        console.say_json({"runs": [run.as_json() for run in past_runs], "rollbacks": rollbacks})
        return
    others = any(run.monitor != ACCURACY for run in past_runs)
    header = tuple(name.format("RESULT" if others else "ACCURACY") for name in _HEADER)
    console.table(header, [_cells(run) for run in past_runs], folded=True)
    if rolled_back:
        console.say("")
        console.table(
            ("ROLLBACK", "OUTPUT", "SERVED", "COPY OF", "BEFORE", "BY", "REASON"),
            [past_run_text.rollback(output, each) for output, each in rolled_back[:limit]],
            folded=True,
        )
    if len(recorded) > limit:
        console.say(f"The newest {limit} of {len(recorded)}; --limit shows more.", stderr=True)


def _cells(run: PastRun) -> tuple[str, ...]:
    changed = (
        f"{name}={past_run_text.value(value)}"
        for name, value in run.changed.items()
        if value is not None and name not in ("data.source", "data.span")  # in the column DATA
    )
    return (
        past_run_text.short_id(run.id),
        str(run.output),
        past_run_text.state(run),
        past_run_text.data(run),
        run.topology,
        past_run_text.time(run),
        past_run_text.result(run),
        past_run_text.blessed(run),
        past_run_text.pushed(run),
        " ".join(changed),
    )
