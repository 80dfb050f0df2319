"""TFX's runners, which also report events, clean up after a signal, and use only this machine."""

from __future__ import annotations

import contextlib
import datetime
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
from tfx.orchestration.local import runner_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.portable import runtime_parameter_utils
from tfx.orchestration.portable.mlmd import context_lib
from tfx.proto.orchestration import pipeline_pb2

from stagecraft.components.metadata import file, outputs, run_metadata
from stagecraft.components.metadata.run import Run
from stagecraft.pipeline import beam
from stagecraft.pipeline.local import interrupt, launcher, lock, nodes, partial_run, protocol
from stagecraft.pipeline.local.cause import explain
from stagecraft.pipeline.local.span_states import SpanStates
from stagecraft.pipeline.local.sweep import sweep


class _Runner:
    """A base class before TFX's runner, whose ``run`` the ``tfx`` command patches."""

    last_run: Run | None = None
    command: str = ""
    """The command line of the run, without secrets, for the report."""

    settings: str = ""
    """YAML of the settings that differ from the defaults, for the report."""

    span_states: SpanStates = SpanStates()
    """Of the span to read; empty if the data have no spans."""

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: pipeline_pb2.RunOptions | None = None
    ) -> None:
        """Runs a compiled pipeline.

        Raises:
            UserError: another run uses the output; there is no such node, or no earlier run to
                start from; the metadata store cannot be opened, or does not know the outputs in
                the pipeline root.
            KeyboardInterrupt: after SIGINT or SIGTERM, and after the cleanup.
        """
        connection = _connection(pipeline)
        self.last_run = Run(_substitute_run_id(pipeline), connection)
        with contextlib.ExitStack() as stack:
            stack.enter_context(interrupt.handled())
            stack.enter_context(_swept(connection, pipeline))
            stack.enter_context(beam.in_process())
            stack.enter_context(beam.rooted(_pipeline_root(pipeline)))
            stack.enter_context(launcher.installed())
            skipped = _prepare_partial(connection, pipeline, run_options)
            self._note(pipeline, skipped)
            _emit_plan(pipeline, skipped)
            try:
                super().run_with_ir(pipeline, run_options)  # type: ignore[misc]
            except Exception as error:
                if interrupt.requested():  # Beam raises a RuntimeError instead
                    raise KeyboardInterrupt from error
                raise

    def _note(self, pipeline: pipeline_pb2.Pipeline, skipped: list[str]) -> None:
        """Notes the run and its nodes in ML Metadata, before the first node begins."""
        assert self.last_run
        with metadata.Metadata(self.last_run.connection) as handle:
            # As TFX's launcher does for the first node: the run, with the pipeline as its parent.
            contexts = pipeline.nodes[0].pipeline_node.contexts
            context_lib.prepare_contexts(metadata_handle=handle, node_contexts=contexts)
            notes = run_metadata.Notes(
                tuple(_names(pipeline)),
                tuple(skipped),
                self.command,
                self.settings,
                *self.span_states,
            )
            run_metadata.write_notes(handle.store, self.last_run.run_id, notes)


class LocalRunner(_Runner, LocalDagRunner):
    """Runs one node after the other in this process."""


class BeamRunner(_Runner, BeamDagRunner):
    """Runs the nodes as steps of one Beam pipeline, in this process."""


def _connection(pipeline: pipeline_pb2.Pipeline) -> metadata.ConnectionConfigType:
    config = runner_utils.extract_local_deployment_config(pipeline).metadata_connection_config
    return getattr(config, config.WhichOneof("connection_config"))


@contextlib.contextmanager
def _swept(connection: Any, pipeline: pipeline_pb2.Pipeline) -> Iterator[None]:
    """Locks the metadata's folder; sweeps unfinished executions before, and after a failure.

    Only for SQLite files: a database server also holds running executions of other users.
    """
    if not connection.HasField("sqlite"):
        yield
        return
    metadata_db = pathlib.Path(connection.sqlite.filename_uri)
    place = (
        metadata_db,
        pathlib.Path(_pipeline_root(pipeline)),
        pipeline.pipeline_info.id,
    )
    with lock.held(metadata_db.parent):
        file.check(metadata_db, write=True)
        outputs.check_known(metadata_db, place[1])
        sweep(*place)
        try:
            yield
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt) or interrupt.requested()
            with interrupt.deferred():
                try:
                    sweep(*place, cause="" if stopped else explain(error))
                except Exception:  # such as a full disk; the next run sweeps
                    logging.getLogger(__name__).exception("not cleaned up")
            raise


def _pipeline_root(pipeline: pipeline_pb2.Pipeline) -> str:
    root: str = pipeline.runtime_spec.pipeline_root.field_value.string_value
    return root


def _substitute_run_id(pipeline: pipeline_pb2.Pipeline) -> str:
    """Chooses the run ID, which the base class would do later."""
    run_id = datetime.datetime.now().isoformat()
    runtime_parameter_utils.substitute_runtime_parameter(
        pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
    )
    return run_id


def _prepare_partial(
    connection: metadata.ConnectionConfigType,
    pipeline: pipeline_pb2.Pipeline,
    run_options: pipeline_pb2.RunOptions | None,
) -> list[str]:
    """Checks a partial run and chooses its base; the names of the nodes that it skips."""
    if run_options is None:
        return []
    partial = run_options.partial_run
    nodes.check([*partial.from_nodes, *partial.to_nodes], _names(pipeline))
    for node in pipeline.nodes:  # --from means: run this node, cached or not
        if node.pipeline_node.node_info.id in partial.from_nodes:
            node.pipeline_node.execution_options.caching_options.enable_cache = False
    return partial_run.choose_base(connection, pipeline, partial)


def _emit_plan(pipeline: pipeline_pb2.Pipeline, skipped: list[str]) -> None:
    run_id = pipeline.runtime_spec.pipeline_run_id.field_value.string_value
    name = pipeline.pipeline_info.id
    protocol.emit(
        "pipeline",
        f"{name}: run {run_id}",
        name=name,
        run_id=run_id,
        nodes=_names(pipeline),
        skipped=skipped,
    )


def _names(pipeline: pipeline_pb2.Pipeline) -> list[str]:
    return [node.pipeline_node.node_info.id for node in pipeline.nodes]
