"""The part of Beam's arguments that belongs to a cache key: those that may change results.

Addresses, ports, parallelism, environments, credentials, retries, temporary folders and labels
change no result, and neither does the runner. So only arguments count that neither Beam nor its
runners know, because the user's code may read them.
"""

from __future__ import annotations

from tfx.proto.orchestration import executable_spec_pb2

from stagecraft.pipeline.beam import arguments


def counted_spec(spec: object) -> object:
    """The executor's specification for TFX's cache key."""
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
