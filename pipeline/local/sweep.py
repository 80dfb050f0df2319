"""Removes the leftovers of an interrupted run.

TFX cleans up after a component only under ``except Exception``, and drivers run outside that
``try``. Ctrl-C, SIGTERM, a kill or a failed driver leave half-written folders and an execution that
stays RUNNING. The sweep marks such executions FAILED, notes the cause, and removes their folders,
so that the next run can continue from the cache.

The sweep needs only ML Metadata (0.3 s), neither TFX nor TensorFlow. The supervisor can run it
after the process of the run was killed::

    python -m stagecraft.pipeline.local.sweep OUTPUT PIPELINE_NAME [CAUSE]
"""

from __future__ import annotations

import logging
import pathlib
import shutil
import sys

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

from stagecraft.components.metadata import file, run_metadata
from stagecraft.pipeline.local import layout, lock

_log = logging.getLogger(__name__)

STOPPED = "stopped before its end"

_UNFINISHED = (metadata_store_pb2.Execution.NEW, metadata_store_pb2.Execution.RUNNING)


def sweep(
    metadata_db: pathlib.Path, pipeline_root: pathlib.Path, pipeline_name: str, cause: str = ""
) -> list[str]:
    """Marks unfinished executions of a pipeline failed and removes their folders; returns nodes.

    The caller must hold the lock, or a running execution could count as a dead one.
    """
    if not metadata_db.exists():
        return []
    # A local run makes a new stateful folder each time, and removes it only if the node succeeds.
    for folder in pipeline_root.glob("*/.system/stateful_working_dir/*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in pipeline_root.glob("*/.system/driver_execution/*"):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    store = file.open_store(metadata_db, write=True)
    pipeline = store.get_context_by_type_and_name("pipeline", pipeline_name)
    if pipeline is None:
        return []
    swept = []
    for execution in store.get_executions_by_context(pipeline.id):
        if execution.last_known_state not in _UNFINISHED:
            continue
        node = _node(store, execution.id, pipeline_name)
        # First the folders, to make room on a full disk. If one cannot be removed because a
        # process still writes, the execution stays unfinished until the next sweep.
        if _remove_folders(pipeline_root / node, execution.id):
            execution.last_known_state = metadata_store_pb2.Execution.FAILED
            result = execution.custom_properties[run_metadata.RESULT]
            if not result.string_value:
                code = run_metadata.UNKNOWN if cause else run_metadata.CANCELLED
                result.string_value = run_metadata.result(cause or STOPPED, code)
            store.put_executions([execution])
            swept.append(node)
            _log.info("%s: execution %d was interrupted: removed", node, execution.id)
    return swept


def _node(store: ml_metadata.MetadataStore, execution_id: int, pipeline_name: str) -> str:
    names = [context.name for context in store.get_contexts_by_execution(execution_id)]
    prefix = f"{pipeline_name}."  # TFX names the node's context <pipeline>.<node>
    return next(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _remove_folders(node_dir: pathlib.Path, execution_id: int) -> bool:
    """Removes ``<output key>/<id>`` and ``.system/*/<id>``; returns whether all are gone."""
    folders = [
        *node_dir.glob(f"*/{execution_id}"),
        *node_dir.glob(f".system/*/{execution_id}"),
    ]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return not any(folder.exists() for folder in folders)


def main() -> None:
    """Sweeps OUTPUT after its run was killed; logs to stderr."""
    output, pipeline_name, *causes = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    logging.basicConfig(level=logging.INFO)
    with lock.held(output):
        sweep(layout.metadata_db(output), layout.pipeline_root(output), pipeline_name, *causes)


if __name__ == "__main__":
    main()
