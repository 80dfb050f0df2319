"""TFX's launcher, which reports the state of each node, and compares files with manifests."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants
from tfx.orchestration.portable import data_types, launcher, outputs_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import executable_spec_pb2, execution_result_pb2
from tfx.types import Artifact
from tfx.types.standard_artifacts import ModelBlessing

from stagecraft.components.metadata import manifest, run_metadata
from stagecraft.pipeline.beam import arguments, reduced_overhead
from stagecraft.pipeline.local import interrupt, nodes, partial_run, protocol, summary
from stagecraft.pipeline.local.cause import explain
from stagecraft.pipeline.local.sweep import STOPPED

_State = metadata_store_pb2.Execution.State


class ReportingLauncher(launcher.Launcher):
    """Launches a node, and emits ``node`` events before and after.

    Its cache key has no Beam arguments that change no result. It describes the outputs of a node by
    :mod:`stagecraft.components.metadata.manifest`, and compares the inputs before and after.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See the base class; the executor has its own copy of the specification."""
        super().__init__(*args, **kwargs)
        self._beam_args = getattr(self._executor_spec, "beam_pipeline_args_placeholders", ())
        self._executor_spec: Any = _counted(self._executor_spec)

    def launch(self) -> data_types.ExecutionInfo | None:
        """Raises KeyboardInterrupt if a signal asked to stop, RuntimeError for missing inputs."""
        node = self._pipeline_node.node_info.id
        if interrupt.requested():
            raise KeyboardInterrupt
        started = time.monotonic()
        protocol.emit("node", f"{node}: running", node=node, state="running")

        def end(state: str, text: str = "", **fields: str) -> None:
            seconds = round(time.monotonic() - started, 2)
            protocol.emit(
                "node",
                f"{node}: {state} after {seconds:.1f} s {text}".rstrip(),
                node=node,
                state=state,
                seconds=seconds,
                **fields,
            )

        try:
            with self._reduced_overhead():
                info = super().launch()
            self._check_resolved(info)
            state, figure = self._outcome(info)
        except (Exception, SystemExit) as error:
            if interrupt.requested():
                end("interrupted")
                raise KeyboardInterrupt from error
            cause = explain(error)
            end("failed", cause, cause=cause)
            raise
        except BaseException:
            end("interrupted")
            raise
        end(state, figure, figure=figure)
        return info

    def _reduced_overhead(self) -> contextlib.AbstractContextManager[None]:
        """Reduces Beam's costs, unless an argument of Beam is known only when the executor runs."""
        if not all(each.HasField("value") for each in self._beam_args):
            return contextlib.nullcontext()
        return reduced_overhead([each.value.string_value for each in self._beam_args])

    def _prepare_execution(self) -> Any:
        """Prepares as TFX does; also notes the cached result that the execution will replace."""
        prepared = super()._prepare_execution()
        if prepared.is_execution_needed:
            with self._mlmd_connection as metadata:
                partial_run.note_cache_key(
                    metadata, prepared.execution_info.execution_id, prepared.contexts
                )
        return prepared

    def _run_executor(
        self, execution_info: data_types.ExecutionInfo
    ) -> execution_result_pb2.ExecutorOutput:
        """Runs as TFX does; also compares inputs and describes outputs.

        Raises:
            DamagedArtifactError: an input is damaged, or became so while the executor read it.
        """
        inputs, outputs = execution_info.input_dict, execution_info.output_dict
        manifest.check(inputs, self._remedy)
        try:
            written = super()._run_executor(execution_info)
        except Exception:
            if not interrupt.requested():
                manifest.check(inputs, self._remedy, thorough=True)  # the cause, if it fails
            raise
        try:
            manifest.check(inputs, self._remedy)
            for key, artifacts in outputs.items():
                finished = [each.mlmd_artifact for each in artifacts]
                if key in written.output_artifacts:
                    finished = written.output_artifacts[key].artifacts
                for artifact in finished:
                    manifest.add(artifact, artifacts[0].type_name)
        except Exception:
            outputs_utils.remove_output_dirs(outputs)
            raise
        return written

    def _check_resolved(self, info: data_types.ExecutionInfo | None) -> None:
        """Compares what a resolver found with its manifests; on an error, marks it failed."""
        if self._system_node_handler is None or info is None or info.execution_id is None:
            return
        try:
            manifest.check(info.output_dict, self._remedy)
        except manifest.DamagedArtifactError:
            self._publish_failed_execution(info.execution_id, [])
            raise

    def _remedy(self, artifact: Artifact) -> tuple[str, str]:
        """How to get a whole artifact, depending on whether a step of this run made it."""
        run_id = self._pipeline_runtime_spec.pipeline_run_id.field_value.string_value
        with self._mlmd_connection as metadata:
            run = run_metadata.RunMetadata.find(metadata.store, run_id)
            if run is not None and artifact.id in {each.id for each in run.outputs()}:
                made_by = run_metadata.producer(metadata.store, artifact.id)
                return f"Make it again with --from {made_by}.", f"--from {made_by}"
        return (
            "An earlier run made it. Restore its files; or remove the folder, and a resolver takes "
            "an older artifact."
        ), ""

    def _publish_failed_execution(
        self,
        execution_id: int,
        contexts: list[metadata_store_pb2.Context],
        executor_output: execution_result_pb2.ExecutorOutput | None = None,
    ) -> None:
        """Publishes as TFX does; also notes the cause of the exception that is being handled."""
        error = sys.exc_info()[1]
        output = executor_output or execution_result_pb2.ExecutorOutput()
        if interrupt.requested():  # Beam may have raised another error
            output.execution_result.result_message = STOPPED
            output.execution_result.code = run_metadata.CANCELLED
        elif error is not None and not output.execution_result.result_message:
            output.execution_result.result_message = explain(error)
        super()._publish_failed_execution(execution_id, contexts, output)

    def _outcome(self, info: data_types.ExecutionInfo | None) -> tuple[str, str]:
        """State and figure of a launched node, from ML Metadata."""
        if info is None or info.execution_id is None:
            return "skipped", ""
        with self._mlmd_connection as metadata:
            [execution] = metadata.store.get_executions_by_id([info.execution_id])
            outputs = execution_lib.get_output_artifacts(metadata, info.execution_id)
            node = self._pipeline_node.node_info.id
            has_blessed = node == nodes.BASELINE and any(
                blessing.custom_properties[constants.ARTIFACT_PROPERTY_BLESSED_KEY].int_value
                for blessing in metadata.store.get_artifacts_by_type(ModelBlessing.TYPE_NAME)
                if constants.ARTIFACT_PROPERTY_BLESSED_KEY in blessing.custom_properties
            )
        if execution.last_known_state == _State.Value("FAILED"):
            result = execution_lib.get_execution_result(execution, ignore_parse_errors=True)
            # The text of a traceback; its last line is class and message.
            last = (result.result_message if result else "").strip().rpartition("\n")[2]
            raise RuntimeError(f"no inputs: {last.partition(': ')[2] or 'see the log'}")
        cached = execution.last_known_state == _State.Value("CACHED")
        try:
            figure = summary.figure(node, outputs, has_blessed=has_blessed)
        except Exception:  # a missing figure must not fail a run
            logging.getLogger(__name__).exception("no figure")
            figure = ""
        return "cached" if cached else "done", figure


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Makes TFX's local and Beam runners use :class:`ReportingLauncher` in the block."""
    stock = launcher.Launcher
    launcher.Launcher = ReportingLauncher
    try:
        with partial_run.cache_checked():
            yield
    finally:
        launcher.Launcher = stock


def _counted(spec: object) -> object:
    """An executor's specification for TFX's cache key, without the arguments of Beam.

    Addresses, ports, parallelism, environments, credentials, retries, temporary folders and labels
    change no result, and neither does the runner. So only arguments count that neither Beam nor its
    runners know, because the user's code may read them.
    """
    if not isinstance(spec, executable_spec_pb2.BeamExecutableSpec):
        return spec
    counted = executable_spec_pb2.BeamExecutableSpec()
    counted.CopyFrom(spec)
    del counted.beam_pipeline_args[:], counted.beam_pipeline_args_placeholders[:]
    _, others = arguments.split(spec.beam_pipeline_args)
    counted.beam_pipeline_args.extend(others)
    counted.beam_pipeline_args_placeholders.extend(
        each for each in spec.beam_pipeline_args_placeholders if not each.HasField("value")
    )
    return counted
