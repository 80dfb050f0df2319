"""A small pipeline in place of the real one: Make -> Count -> Last, as the environment wants it.

``STAND_IN`` is a JSON object, node name to what it does: ``ok`` (nothing special), ``fail``,
``user_error``, ``hang`` (in Python), ``hang_in_beam``, ``exit``, ``kill`` (itself), ``train``
(until a stop request; then it writes ``OUTPUT/saved``), ``train_on`` (ignores requests). A
node that hangs or trains writes half an output, then its process id into ``OUTPUT/hanging``.
"""

import json
import logging
import os
import pathlib
import signal
import time

import apache_beam as beam

# Not tfx.v1, which also imports Google Cloud's clients: 40 % of the time.
from tfx.dsl.component.experimental.annotations import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    Parameter,
)
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types.standard_artifacts import Examples

from stagecraft.common.errors import UserError
from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.processes import preemption


def behave(node: str, output: str, folder: str) -> None:
    """Does what the environment says that this node does."""
    what = json.loads(os.environ.get("STAND_IN", "{}")).get(node, "ok")
    progress = {"phase": "write", "done": 1, "total": 2}
    logging.getLogger("stagecraft.progress").info("half", extra={"progress": progress})
    pathlib.Path(folder, "half").write_text("half")
    if what == "fail":
        raise ValueError(f"{node} cannot go on")
    if what == "user_error":
        raise UserError(f"data.bin: record 7 has label 10; expected 0 to 9 ({node})")
    if what == "exit":
        raise SystemExit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what.startswith("train"):
        with preemption.stoppable():
            pathlib.Path(output, "hanging").write_text(str(os.getpid()))
            while what == "train_on" or not preemption.requested():
                time.sleep(0.05)
                if preemption.requested():
                    pathlib.Path(output, "asked").touch()
            pathlib.Path(output, "saved").touch()
            raise preemption.Preempted(7)
    if what.startswith("hang"):
        pathlib.Path(output, "hanging").write_text(str(os.getpid()))
        while True:
            time.sleep(0.05)


@component
def Make(made: OutputArtifact[Examples], output: Parameter[str]) -> None:
    behave("Make", output, made.uri)
    made.set_int_custom_property("count", 6)


@component(use_beam=True)
def Count(
    made: InputArtifact[Examples],
    counted: OutputArtifact[Examples],
    output: Parameter[str],
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    folder = counted.uri

    def step(item: int) -> int:
        behave("Count", output, folder)
        return item

    with beam_pipeline as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(step)


@component
def Last(
    counted: InputArtifact[Examples],
    last: OutputArtifact[Examples],
    output: Parameter[str],
) -> None:
    behave("Last", output, last.uri)


def create_pipeline(settings: PipelineSettings, output: str | pathlib.Path) -> Pipeline:
    """Has the signature, the folders and the caching of the real one."""
    output = pathlib.Path(output)
    make = Make(output=str(output))
    count = Count(made=make.outputs["made"], output=str(output))
    last = Last(counted=count.outputs["counted"], output=str(output))
    return Pipeline(
        pipeline_name=settings.name,
        pipeline_root=str(output / "pipeline_root"),
        metadata_connection_config=sqlite_metadata_connection_config(str(output / "metadata.db")),
        components=[make, count, last],
        beam_pipeline_args=beam_args(settings.beam),
        enable_cache=True,
    )
