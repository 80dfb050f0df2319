"""Output folders that hold something before their execution begins."""

import pathlib

import pytest
from past_runs import Output
from tfx.types import standard_artifacts

from stagecraft.components.metadata import outputs
from stagecraft.components.metadata.outputs import OutputExistsError


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """An output folder whose store knows six executions, with an output of the first."""
    Output(tmp_path).whole("R1")
    write(tmp_path, "Cifar10ExampleGen/examples/1/Split-train/a")
    return tmp_path


def write(folder: pathlib.Path, name: str) -> None:
    path = folder / "pipeline_root" / name
    path.parent.mkdir(parents=True)
    path.write_text("old")
    (folder / "pipeline_root" / name.partition("/")[0] / ".system").mkdir(exist_ok=True)


def check(folder: pathlib.Path) -> None:
    outputs.check_known(folder / "metadata.db", folder / "pipeline_root")


def test_a_store_that_knows_them(folder):
    check(folder)
    (folder / "pipeline_root" / "Trainer" / "model" / "70").mkdir(parents=True)  # empty
    write(folder, "Trainer/.system/executor_execution/80/x")
    write(folder, "Trainer/notes/90b/x")
    checkpoint = folder / "pipeline_root" / "checkpoints" / "0a1b" / "100" / "state"
    checkpoint.mkdir(parents=True)
    check(folder)


def test_a_lost_store(folder):
    (folder / "metadata.db").unlink()
    with pytest.raises(OutputExistsError) as caught:
        check(folder)
    kept = folder / "pipeline_root" / "Cifar10ExampleGen" / "examples" / "1"
    assert caught.value.file == str(kept)
    assert f"move {folder / 'pipeline_root'} away" in str(caught.value)
    assert (kept / "Split-train" / "a").read_text() == "old"
    assert not (folder / "metadata.db").exists()


def test_an_older_store_put_in_its_place(folder):
    write(folder, "Trainer/model/7/x")
    with pytest.raises(OutputExistsError, match="execution 7, .* execution 6"):
        check(folder)


def test_nothing_there(tmp_path):
    check(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _model(folder: pathlib.Path) -> dict[str, list[standard_artifacts.Model]]:
    model = standard_artifacts.Model()
    model.uri = str(folder)
    return {"model": [model]}


def test_a_driver_refuses_and_touches_nothing(tmp_path):
    outputs.check_empty(_model(tmp_path / "none"))
    outputs.check_empty(_model(tmp_path))
    (tmp_path / "old").write_text("old")
    with pytest.raises(OutputExistsError) as caught:
        outputs.check_empty(_model(tmp_path))
    assert caught.value.file == str(tmp_path)
    assert (tmp_path / "old").read_text() == "old"


def test_an_executor_keeps_what_tfx_would_remove(tmp_path):
    folder = tmp_path / "1"
    for kept in ("1.kept", "1.kept2"):
        folder.mkdir(exist_ok=True)
        (folder / "old").write_text(kept)
        with pytest.raises(OutputExistsError):
            outputs.keep_and_refuse(_model(folder))
        assert (tmp_path / kept / "old").read_text() == kept
        assert list(folder.iterdir()) == []
    outputs.keep_and_refuse(_model(folder))
