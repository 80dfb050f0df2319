"""``stagecraft schema``."""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

INFERRING = (
    "data.schema_file=null",
    "data.infer_schema=true",
    "data.window=1",
    "train.window_weights=null",
)
"""Settings in place of those of the pipeline that has the schema."""


@click.command(
    cls=Command, quiet=False, short_help="Infer a schema from the data, as a file to edit."
)
@options.settings_options
@options.data_option
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    default="schema.pbtxt",
    show_default=True,
    metavar="FILE",
    help="The file to write. The command does not replace an existing file.",
)
def schema(config: str, overrides: tuple[str, ...], data: str | None, output: pathlib.Path) -> int:
    """Infer a schema from the train split, as a file to edit for data.schema_file.

    The command reads the data with data.example_gen, computes statistics, and runs TFX's SchemaGen.
    The schema describes these data. Widen it where other data are correct as well, and narrow it
    where AnomalyGate must stop the pipeline.

    \b
    stagecraft schema --config houses.yaml
    stagecraft run --config houses.yaml --set data.schema_file=schema.pbtxt

    Exit code: 0; 1 if the data cannot be read, or the file exists or cannot be written; 130 after
    Ctrl-C.
    """
    from stagecraft.pipeline.checks import early_checks  # --help needs none of it
    from stagecraft.pipeline.cli.terminal.run_view import RunState, run_view
    from stagecraft.pipeline.local import layout, nodes
    from stagecraft.pipeline.local.protocol import RunSpec
    from stagecraft.pipeline.local.supervisor import open_log, supervise

    if output.exists():
        raise UserError(
            f"--output {output}: exists; use another name, or delete the file",
            setting="--output",
            value=str(output),
            file=str(output),
        )
    try:
        tempfile.TemporaryFile(dir=output.parent).close()  # before the work, not after it
    except OSError as error:
        raise layout.OutputError(output, error) from error
    settings = options.load_settings(config, (*overrides, *INFERRING), data)
    early_checks.check_data(settings)
    early_checks.check_files(settings)
    with tempfile.TemporaryDirectory(prefix="schema-") as folder:
        root = pathlib.Path(folder)
        spec = RunSpec(settings=settings, output=root, to_node=nodes.SCHEMA_GEN)
        state = RunState(nodes.of(settings))
        with open_log(root) as log, run_view(state, stderr=True) as on_event:
            outcome = supervise(spec, log, on_event)
        if outcome.status == "interrupted":
            console.error("interrupted: no schema")
            return 128 + outcome.signal
        if outcome.status != "ok":
            cause = state.nodes[state.failed].cause if state.failed else outcome.cause
            raise UserError(f"{state.failed or outcome.status}: {cause or 'no schema'}")
        (found,) = layout.pipeline_root(root).glob(f"{nodes.SCHEMA_GEN}/schema/*/schema.pbtxt")
        try:
            shutil.copyfile(found, output)
        except OSError as error:
            raise layout.OutputError(output, error) from error
    console.fields([("schema", str(output))], stderr=False)
    return 0
