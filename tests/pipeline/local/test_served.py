"""A Pusher and a Baseline in runs: a version that is gone or damaged is no result of the cache."""

# No "from __future__ import annotations": TFX reads the annotations of its components.
import os
import pathlib

import pytest
from damages import WAYS
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto.pusher_pb2 import PushDestination
from tfx.types.channel import Channel
from tfx.types.standard_artifacts import Model, ModelBlessing

from stagecraft.components import LatestBlessedBaseline, Pusher
from stagecraft.components.metadata.manifest import DamagedArtifactError
from stagecraft.pipeline.local import summary
from stagecraft.pipeline.local.runners import BeamRunner, LocalRunner


@component
def Make(model: OutputArtifact[Model], content: Parameter[str]) -> None:
    """Writes the files of a model."""
    folder = pathlib.Path(model.uri, "Format-Serving")
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    (folder / "weights").write_text("weights")


@component
def Bless(
    model: InputArtifact[Model],
    blessing: OutputArtifact[ModelBlessing],
    baseline_model: InputArtifact[Model] = None,
) -> None:
    """Blesses each model."""
    blessing.set_int_custom_property("blessed", 1)
    blessing.set_int_custom_property("current_model_id", model.id)


@pytest.fixture
def run(tmp_path):
    """``run(runner, content)`` makes, blesses and pushes a model; what a person would be told."""

    def once(runner=LocalRunner, content="a model"):
        make = Make(content=content)
        baseline = Resolver(
            strategy_class=LatestBlessedBaseline,
            candidate=make.outputs["model"],
            model=Channel(type=Model),
            model_blessing=Channel(type=ModelBlessing),
        ).with_id("Baseline")
        bless = Bless(model=make.outputs["model"], baseline_model=baseline.outputs["model"])
        filesystem = PushDestination.Filesystem(base_directory=str(tmp_path / "serving"))
        pusher = Pusher(
            model=make.outputs["model"],
            model_blessing=bless.outputs["blessing"],
            push_destination=PushDestination(filesystem=filesystem),
        )
        database = str(tmp_path / "metadata.db")
        used = once.runner = runner()
        used.run(
            Pipeline(
                pipeline_name="served",
                pipeline_root=str(tmp_path / "root"),
                components=[make, baseline, bless, pusher],
                metadata_connection_config=sqlite_metadata_connection_config(database),
                enable_cache=True,
            )
        )
        return summary.report({"Pusher": used.last_run.outputs()["Pusher"]})

    return once


@pytest.mark.parametrize("runner", [LocalRunner, BeamRunner])
def test_a_version_that_is_gone_or_damaged_is_pushed_again(run, runner, tmp_path):
    first = run(runner)["pushed"]
    assert run(runner)["pushed"] == first  # from the cache
    os.rename(first, tmp_path / "moved")
    second = run(runner)["pushed"]
    assert pathlib.Path(second, "saved_model.pb").read_text() == "a model"
    for way in WAYS:
        WAYS[way](pathlib.Path(second, "saved_model.pb"))
        third = run(runner)["pushed"]
        assert third != second and int(os.path.basename(third)) > int(os.path.basename(second))
        assert pathlib.Path(third, "saved_model.pb").read_text() == "a model"
        assert run(runner)["pushed"] == third
        second = third


def test_nobody_is_told_of_a_version_that_is_gone(run, tmp_path):
    """As after a partial run that skips the Pusher."""
    version = run()["pushed"]
    os.rename(version, tmp_path / "moved")
    outputs = run.runner.last_run.outputs()
    told = summary.report({"Pusher": outputs["Pusher"]})
    assert told["pushed"] is None
    assert told["not_pushed_because"] == f"{version} is gone"


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_baseline_is_refused(run, tmp_path, way):
    """A model must not be compared with what is left of another, nor with none."""
    run(content="first")
    [path] = tmp_path.glob("root/Make/model/*/Format-Serving/weights")
    WAYS[way](path)
    with pytest.raises(DamagedArtifactError) as caught:
        run(content="second")
    assert (caught.value.file, caught.value.suggestion) == (str(path), "")
    os.rename(path.parent.parent, tmp_path / "moved")
    assert run(content="second")["pushed"]
