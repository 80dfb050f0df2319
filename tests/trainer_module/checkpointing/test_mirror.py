import pathlib
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations


class Store:
    """A store in a folder, which notes what is done to it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.done: list[tuple[str, str]] = []

    def names(self) -> list[str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return [path.relative_to(self.folder).as_posix() for path in files]

    def read(self, name: str) -> bytes | None:
        file = self.folder / name
        return file.read_bytes() if file.exists() else None

    def write(self, name: str, content: bytes) -> None:
        self._place(name).write_bytes(content)

    def download(self, name: str, path: pathlib.Path) -> None:
        self.done.append(("download", name))
        shutil.copyfile(self.folder / name, path)

    def upload(self, path: pathlib.Path, name: str) -> None:
        self.done.append(("upload", name))
        shutil.copyfile(path, self._place(name))

    def remove(self, name: str) -> None:
        self.done.append(("remove", name))
        (self.folder / name).unlink(missing_ok=True)

    def _place(self, name: str) -> pathlib.Path:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def chief(tmp_path: pathlib.Path, store: Store) -> Iterator[Checkpoints]:
    mirror.use(tmp_path / "chief", store)
    with Checkpoints(tmp_path / "chief", keep=2) as checkpoints:
        yield checkpoints


@pytest.fixture
def reader(tmp_path: pathlib.Path, store: Store) -> Checkpoints:
    """Of another process."""
    mirror.use(tmp_path / "reader", store)
    return Checkpoints(tmp_path / "reader", writes=False)


def save(checkpoints: Checkpoints, step: int, value: float = 0.0) -> None:
    checkpoints.save(step, {"weights": np.full(3, value)}, {}, best_step=step)
    checkpoints.flush()


def test_what_one_saves_another_reads(chief, reader, store):
    assert reader.newest() is None
    save(chief, 7, 1.5)
    found = reader.newest()
    assert found is not None and found.step == 7
    np.testing.assert_array_equal(found.state["weights"], np.full(3, 1.5))
    store.done.clear()
    reader.load(7)
    chief.load(7)
    assert store.done == []  # it is here already


def test_the_notes_come_last_and_go_first(chief, store):
    """Between two requests, a step is whole or not there."""
    save(chief, 1)
    assert store.done[-1] == ("upload", "1/progress.json") and len(store.done) == 3
    save(chief, 2)
    store.done.clear()
    save(chief, 3)
    assert chief.steps() == [2, 3]
    removed = [name for what, name in store.done if what == "remove"]
    assert removed[0] == "1/progress.json" and len(removed) == 3


def test_a_step_that_was_not_sent_whole_is_none(chief, reader, store):
    save(chief, 1)
    save(chief, 2)
    store.remove("2/progress.json")
    assert reader.steps() == chief.steps() == [1]
    found = reader.newest()
    assert found is not None and found.step == 1


def test_a_step_of_another_training_takes_the_place_of_one_that_is_here(chief, reader):
    save(chief, 1, 1.0)
    reader.load(1)
    chief.clear()
    assert reader.newest() is None
    chief.save(1, {"weights": np.full(3, 2.0)}, {"another": True}, best_step=1)
    chief.flush()
    np.testing.assert_array_equal(reader.load(1).state["weights"], np.full(3, 2.0))


def test_a_training_that_is_set_aside_is_kept_in_the_store(chief, reader, store):
    save(chief, 1, 1.0)
    assert chief.set_aside().name == "replaced-1"
    assert reader.newest() is None and chief.steps() == []
    kept = {name for name in store.names() if name.startswith("replaced-1/1/")}
    assert {"replaced-1/1/progress.json", "replaced-1/1/state.index"} <= kept
    save(chief, 2)
    assert reader.steps() == [2]


def test_one_that_is_dropped_while_it_is_read(chief, reader, store, monkeypatch):
    save(chief, 1)
    download = store.download

    def dropped(name: str, path: pathlib.Path) -> None:
        (store.folder / name).unlink()
        download(name, path)

    monkeypatch.setattr(store, "download", dropped)
    with pytest.raises(UnreadableCheckpointError):
        reader.load(1)
    assert list(reader.root.iterdir()) == []


def test_what_was_brought_goes_with_what_is_dropped(chief, reader):
    for step in (1, 2, 3, 4):
        save(chief, step)
        reader.load(step)
    assert reader.steps() == [3, 4]
    assert sorted(entry.name for entry in reader.root.iterdir()) == ["3", "4"]


def test_what_was_sent_in_part_is_removed_by_who_comes_next(tmp_path, store):
    store.write("6/state.index", b"")
    store.write("evaluations.json", b"[]")
    mirror.use(tmp_path / "next", store)
    with Checkpoints(tmp_path / "next"):
        assert store.names() == ["evaluations.json"]


def test_evaluations(tmp_path, store, reader):
    mirror.use(tmp_path / "evaluator", store)
    found = Evaluation(3, 0.5, accuracy=0.75)
    assert Evaluations(tmp_path / "evaluator").read() == []
    Evaluations(tmp_path / "evaluator").add(found)
    assert Evaluations(reader.root).read() == [found]
    Evaluations(reader.root).clear()
    assert Evaluations(tmp_path / "evaluator").read() == []
    Evaluations(reader.root).clear()
