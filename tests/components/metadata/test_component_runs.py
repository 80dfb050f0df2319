"""Times of a run's components, from a metadata store."""

import pathlib

import pytest
from past_runs import Output, State

from stagecraft.components.metadata import run_metadata
from stagecraft.components.metadata.run_metadata import ComponentRun, RunMetadata


@pytest.fixture
def metadata_db(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run that trains, and one that finds the model in the cache, and fails after that."""
    output = Output(tmp_path)
    output.step(output.begin("first"), "Trainer", outputs=[output.artifact("Model", "/model")])
    second = output.begin("second")
    output.step(second, "Trainer", State.CACHED, outputs=output.store.get_artifacts())
    output.step(second, "Pusher", State.FAILED)
    return tmp_path / "metadata.db"


def read(metadata_db: pathlib.Path, run_id: str) -> list[ComponentRun]:
    return run_metadata.component_runs(RunMetadata.open(metadata_db, run_id))


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
