"""``stagecraft push``."""

from __future__ import annotations

import pathlib
import posixpath
from typing import Any

import click

from stagecraft.common import garbage_collection
from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console


@click.command(cls=Command, short_help="Roll a served model back to an earlier version.")
@click.option("--rollback", "rolls_back", is_flag=True, help="Serve an earlier version again.")
@click.option(
    "--to",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="The version to serve again. Default: the newest one with another model that nobody has "
    "rolled back from.",
)
@click.option(
    "--reason", callback=options.not_empty, metavar="TEXT", help="Why; ML Metadata records it."
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="The output folder of the runs. Default: the only one below runs/.",
)
@click.option(
    "--directory",
    callback=options.not_empty,
    metavar="FOLDER|ADDRESS",
    help="Instead of --output: the folder of the versions. Only the new version then has the "
    "record.",
)
@options.json_option
def push(
    rolls_back: bool,
    to: int | None,
    reason: str | None,
    output: pathlib.Path | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Copy an earlier version of the pushed model to the highest number.

    TensorFlow Serving serves the version with the highest number, so it loads the copy. The newer
    versions stay. The copy is atomic, as a push is. ML Metadata and the file rollback.json in the
    new version record who rolled back, when, why, from which version and to which one. `stagecraft
    history` shows the record.

    \b
    stagecraft push --rollback --reason "worse on phones"
    stagecraft push --rollback --to 1764230400 --reason "the last one before the new camera"

    Exit code: 0; 1 if there is no version to roll back to.
    """
    if not rolls_back or not reason:
        missing = "--reason" if rolls_back else "--rollback"
        use = 'stagecraft push --rollback --reason "worse on phones"'
        raise UserError(
            f"{missing} is missing; use {use}. 'stagecraft run' pushes new models.",
            setting=missing,
            suggestion=use,
        )
    if output is not None and directory is not None:
        raise UserError("--output, --directory: set only one of them.", setting="--directory")
    from stagecraft.components.metadata import file, rollbacks
    from stagecraft.pipeline.history import runs
    from stagecraft.pipeline.local import layout, lock

    metadata_db = None
    if directory is None:
        output = output or runs.only_output()
        runs.list_runs(output)  # it is an output folder
        metadata_db = layout.metadata_db(output)
        file.check(metadata_db, write=True)
        directory = rollbacks.serving_folder(metadata_db)
        if directory is None:
            raise UserError(
                f"{output}: no run has pushed a model yet; there is nothing to roll back to.",
                setting="--output",
                file=str(output),
            )
    else:
        directory = layout.serving(pathlib.Path(), directory)
    with garbage_collection.paused(freeze=True):  # of TensorFlow
        from stagecraft.components.pusher import rollback

    done = rollback.roll_back(directory, reason, to)
    record = posixpath.join(directory, str(done.version), rollback.FILE)
    if metadata_db is not None:
        rollbacks.write(metadata_db, directory, done)
    if as_json:
        fields: dict[str, Any] = {**done._asdict(), "directory": directory}
        console.say_json({**fields, "metadata_db": str(metadata_db) if metadata_db else None})
        return
    console.fields(
        [
            ("served", f"version {done.version}, a copy of version {done.restored}"),
            ("before", f"version {done.replaced}"),
            ("folder", directory),
            ("by", done.user),
            ("reason", done.reason),
            ("record", f"{metadata_db or record}"),
        ]
    )
    if output is not None and lock.held_since(output) is not None:
        console.warning(
            f"{output}: a run is in progress. If its model is blessed, it becomes the newest "
            "version."
        )
