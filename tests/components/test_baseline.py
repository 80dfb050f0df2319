"""The baseline is the model blessed last, never the candidate, through a real TFX pipeline."""

# No "from __future__ import annotations": TFX reads the annotations of its components.
import pathlib
from collections.abc import Callable

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.components.resolvers import LatestBlessedBaseline

Model = standard_artifacts.Model
ModelBlessing = standard_artifacts.ModelBlessing


@component
def StandInTrainer(model: OutputArtifact[Model], settings: Parameter[str]) -> None:
    """Trains nothing."""
    (pathlib.Path(model.uri) / "weights").write_text(settings)


@component
def StandInEvaluator(
    model: InputArtifact[Model],
    blessing: OutputArtifact[ModelBlessing],
    min_accuracy: Parameter[int],
    baseline_model: InputArtifact[Model] = None,
) -> None:
    """Blesses as TFX's Evaluator does, unless the settings are "bad", and notes the baseline."""
    weights = (pathlib.Path(model.uri) / "weights").read_text()
    blessing.set_int_custom_property("blessed", int(weights != "bad"))
    blessing.set_int_custom_property("current_model_id", model.id)
    blessing.set_int_custom_property("baseline_id", baseline_model.id if baseline_model else 0)


Run = Callable[..., tuple[int, int, bool]]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """Runs the pipeline; gives ids of candidate and baseline (0: none), and whether cached."""
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))

    def run_once(settings: str, min_accuracy: int = 0) -> tuple[int, int, bool]:
        trainer = StandInTrainer(settings=settings)
        baseline = Resolver(
            strategy_class=LatestBlessedBaseline,
            candidate=trainer.outputs["model"],
            model=Channel(type=Model),
            model_blessing=Channel(type=ModelBlessing),
        ).with_id("Baseline")
        evaluator = StandInEvaluator(
            model=trainer.outputs["model"],
            baseline_model=baseline.outputs["model"],
            min_accuracy=min_accuracy,
        )
        LocalDagRunner().run(
            Pipeline(
                pipeline_name="baseline",
                pipeline_root=str(tmp_path / "root"),
                components=[trainer, baseline, evaluator],
                metadata_connection_config=connection,
                enable_cache=True,
            )
        )
        with metadata.Metadata(connection) as handle:
            store = handle.store
            execution = max(
                store.get_executions_by_type(f"{__name__}.StandInEvaluator"), key=lambda e: e.id
            )
            event = next(
                event
                for event in store.get_events_by_execution_ids([execution.id])
                if event.type == metadata_store_pb2.Event.OUTPUT
            )
            (blessing,) = store.get_artifacts_by_id([event.artifact_id])
        noted = {name: value.int_value for name, value in blessing.custom_properties.items()}
        cached = execution.last_known_state == metadata_store_pb2.Execution.CACHED
        return noted["current_model_id"], noted["baseline_id"], cached

    return run_once


def test_unchanged_is_cached_and_changed_meets_the_last_blessed(run):
    first, baseline, cached = run("a")
    assert (baseline, cached) == (0, False)  # empty: the Evaluator runs without a baseline
    assert run("a") == (first, 0, True)
    assert run("a") == (first, 0, True)

    second, baseline, cached = run("b")
    assert second != first
    assert (baseline, cached) == (first, False)
    assert run("b") == (second, first, True)

    bad, baseline, cached = run("bad")
    assert (baseline, cached) == (second, False)
    assert run("bad") == (bad, second, True)  # not blessed, not tried again

    _, baseline, _ = run("c")
    assert baseline == second  # never one that was not blessed


def test_a_model_that_came_back_is_the_last_blessed(run):
    first, _, _ = run("a")
    second, _, _ = run("b")
    assert run("a") == (first, second, False)  # trained earlier, blessed again now
    assert run("a") == (first, second, True)
    assert run("b") == (second, first, True)
    _, baseline, _ = run("c")
    assert baseline == first


def test_a_model_whose_files_are_gone_is_no_baseline(run, tmp_path):
    run("a")
    (weights,) = tmp_path.glob("root/StandInTrainer/model/*/weights")
    weights.unlink()
    weights.parent.rmdir()
    _, baseline, _ = run("b")
    assert baseline == 0


def test_with_artifacts_alone():
    def model(number: int) -> Model:
        artifact = Model()
        artifact.id, artifact.uri = number, str(pathlib.Path(__file__).parent)
        return artifact

    def blessing(number: int, model_id: int, *, blessed: bool) -> ModelBlessing:
        artifact = ModelBlessing()
        artifact.id = number
        artifact.set_int_custom_property("current_model_id", model_id)
        artifact.set_int_custom_property("blessed", int(blessed))
        return artifact

    def resolve(**inputs: list) -> tuple[list[int], list[int]]:
        resolved = LatestBlessedBaseline().resolve_artifacts(None, inputs)
        assert set(resolved) == set(inputs)
        assert resolved["candidate"] == inputs["candidate"]
        return [m.id for m in resolved["model"]], [b.id for b in resolved["model_blessing"]]

    models = [model(number) for number in (3, 1, 2)]
    blessings = [
        blessing(11, 1, blessed=True),
        blessing(12, 2, blessed=True),
        blessing(13, 3, blessed=False),
    ]
    assert resolve(candidate=[models[0]], model=models, model_blessing=blessings) == ([2], [12])
    assert resolve(candidate=[models[2]], model=models, model_blessing=blessings) == ([1], [11])
    assert resolve(candidate=[], model=models, model_blessing=blessings) == ([2], [12])
    assert resolve(candidate=[models[0]], model=models, model_blessing=[]) == ([], [])
    assert resolve(candidate=[models[0]], model=[models[0]], model_blessing=blessings) == ([], [])
