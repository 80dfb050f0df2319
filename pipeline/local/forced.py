"""A step that was to run anew, and did not come to its end, is still to run.

``--from Trainer`` runs the Trainer although the cache has its result. If that run is interrupted,
the cache still has the older result, and a run without ``--from`` would take it. Here, each
execution is associated with its cache key before it begins, as TFX does once it has ended; and
what is in the cache counts only if no later execution of the same key came to nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.orchestration.portable import cache_utils
from tfx.orchestration.portable.mlmd import context_lib

_Execution = metadata_store_pb2.Execution


def note(
    handle: metadata.Metadata, execution_id: int, contexts: Sequence[metadata_store_pb2.Context]
) -> None:
    """Associates an execution that is about to begin with its cache key.

    Args:
        handle: an open connection.
        execution_id: of the execution.
        contexts: of the execution; the key is one of them.
    """
    kind = handle.store.get_context_type(context_lib.CONTEXT_TYPE_EXECUTION_CACHE)
    keys = [each for each in contexts if each.type_id == kind.id]
    handle.store.put_attributions_and_associations(
        [],
        [
            metadata_store_pb2.Association(context_id=key.id, execution_id=execution_id)
            for key in keys
        ],
    )


@contextlib.contextmanager
def respected() -> Iterator[None]:
    """In the block, TFX finds nothing in its cache that a later execution was to replace."""
    stock = cache_utils.get_cached_outputs

    def get_cached_outputs(
        metadata_handle: metadata.Metadata, cache_context: metadata_store_pb2.Context
    ) -> Any:
        executions = metadata_handle.store.get_executions_by_context(cache_context.id)
        newest = max(executions, key=lambda execution: int(execution.id), default=None)
        if newest is not None and newest.last_known_state == _Execution.FAILED:
            return None
        return stock(metadata_handle=metadata_handle, cache_context=cache_context)

    cache_utils.get_cached_outputs = get_cached_outputs
    try:
        yield
    finally:
        cache_utils.get_cached_outputs = stock
