"""Times of a run's components, from a metadata store."""

import pathlib

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as pb

from stagecraft.components.metadata import component_runs
from stagecraft.components.metadata.component_runs import ComponentRun
from stagecraft.components.metadata.run_metadata import RunMetadata


@pytest.fixture
def metadata_db(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run that trains, and one that finds the model in the cache, and fails after that."""
    path = tmp_path / "metadata.db"
    config = pb.ConnectionConfig()
    config.sqlite.filename_uri = str(path)
    store = ml_metadata.MetadataStore(config)
    kinds = {
        name: store.put_context_type(pb.ContextType(name=name)) for name in ("pipeline_run", "node")
    }
    runs = store.put_contexts(
        [pb.Context(name=name, type_id=kinds["pipeline_run"]) for name in ("first", "second")]
    )
    nodes = store.put_contexts(
        [pb.Context(name=f"p.{name}", type_id=kinds["node"]) for name in ("Trainer", "Pusher")]
    )
    kind = store.put_execution_type(pb.ExecutionType(name="any"))
    model = store.put_artifact_type(pb.ArtifactType(name="Model"))
    state = pb.Execution.State
    made = None
    for run, node, how in (
        (runs[0], nodes[0], state.COMPLETE),
        (runs[1], nodes[0], state.CACHED),
        (runs[1], nodes[1], state.FAILED),
    ):
        execution = pb.Execution(type_id=kind, last_known_state=how)
        outputs = []
        if node == nodes[0]:
            artifact = pb.Artifact(type_id=model, uri="/model", id=made)
            outputs = [(artifact, pb.Event(type=pb.Event.OUTPUT))]
        _, artifacts, _ = store.put_execution(
            execution, outputs, store.get_contexts_by_id([run, node])
        )
        made = artifacts[0] if artifacts else made
    return path


def read(metadata_db: pathlib.Path, run_id: str) -> list[ComponentRun]:
    return component_runs.read(RunMetadata.open(metadata_db, run_id))


def test_a_run_from_the_cache(metadata_db):
    trainer, pusher = read(metadata_db, "second")
    assert (trainer.name, trainer.state) == ("Trainer", "cached")
    assert trainer.original_seconds is not None and trainer.original_seconds >= 0
    assert (pusher.name, pusher.state, pusher.original_seconds) == ("Pusher", "failed", None)
    assert pusher.begin >= trainer.begin == 0


def test_the_first_run(metadata_db):
    [trainer] = read(metadata_db, "first")
    assert (trainer.state, trainer.original_seconds) == ("done", None)


def test_nothing_to_read(metadata_db, tmp_path):
    assert read(metadata_db, "third") == []
    assert read(tmp_path / "none.db", "first") == []
    assert not (tmp_path / "none.db").exists()
