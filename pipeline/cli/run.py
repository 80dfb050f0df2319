"""``stagecraft run``."""

from __future__ import annotations

import pathlib
import sys

import click

from stagecraft.pipeline.cli.options import data_option, settings_options


@click.command(short_help="Run the pipeline and show how it goes.")
@settings_options
@data_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="Folder for everything that the run leaves. Default: runs/<name of the pipeline>.",
)
@click.option(
    "--runner",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="TFX's LocalDagRunner, or its BeamDagRunner.",
)
@click.option("--from", "from_node", metavar="COMPONENT", help="Start here, cached or not.")
@click.option("--to", "to_node", metavar="COMPONENT", help="Stop after this one.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Forget the checkpoints in the output folder: a training that was stopped starts over.",
)
@click.option("--require-blessing", is_flag=True, help="Fail if the model is not good enough.")
@click.option(
    "--timeline",
    type=int,
    metavar="STEP",
    help="Write down when each stage made each pass of this step, with parallel.strategy: grid; "
    "the same as --set parallel.timeline_step=STEP.",
)
@click.option(
    "--profile",
    metavar="FIRST:LAST",
    help="Write TensorFlow's profile of these steps for TensorBoard; the same as --set "
    "parallel.profile_steps=FIRST:LAST.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def run(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    output: pathlib.Path | None,
    runner: str,
    from_node: str | None,
    to_node: str | None,
    fresh: bool,
    require_blessing: bool,
    timeline: int | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Run the pipeline, from data to pushed model, and show how it goes.

    What has not changed since the last run with the same output is not done again. Ctrl-C leaves
    nothing half-done, and the command that goes on is shown.

    \b
    stagecraft run
    stagecraft run --config cifar10 --data ~/cifar-10-binary.tar.gz --output runs/first
    stagecraft run --set train.model=resnet20 --set train.epochs=20
    stagecraft run --from Trainer

    Exit code: 0 when it ran to its end, blessed or not (see --require-blessing); 1 when it failed;
    130 after Ctrl-C.
    """
    try:
        from stagecraft.pipeline.cli.execute import Request, execute  # --help needs none of it
        from stagecraft.pipeline.settings.overrides import Override

        watched = (
            ("--timeline", "parallel.timeline_step", timeline),
            ("--profile", "parallel.profile_steps", profile),
        )
        named = [Override.option(*each) for each in watched if each[-1] is not None]
        request = Request(
            config=config,
            overrides=(*overrides, *named),
            data=data,
            output=output,
            runner=runner,
            from_node=from_node,
            to_node=to_node,
            fresh=fresh,
            require_blessing=require_blessing,
            as_json=as_json,
        )
        sys.exit(execute(request))
    except KeyboardInterrupt:  # before there was anything to stop
        sys.exit(130)
