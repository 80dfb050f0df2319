"""Whether the newest version is the model: by what it computes, not by its bytes."""

import pathlib
import shutil

import pytest
import tensorflow as tf
from tfx.utils import io_utils

from stagecraft.components.pusher.already import find


def export(
    folder: pathlib.Path, *, factor: float = 2.0, name: str = "a", twice: bool = False
) -> str:
    """A SavedModel with a variable, a constant and a function, traced anew."""
    module = tf.Module()
    module.factor = tf.Variable(factor)

    @tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
    def serve(values: tf.Tensor) -> dict[str, tf.Tensor]:
        scaled = values * module.factor
        return {"scaled": scaled * module.factor if twice else scaled, "name": tf.constant(name)}

    module.serve = serve
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})
    return str(folder)


@pytest.fixture
def serving(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the version 7."""
    export(tmp_path / "serving" / "7")
    (tmp_path / "serving" / "7" / "model_card.md").write_text("beside the model")
    (tmp_path / "serving" / ".pushing-x").mkdir()
    (tmp_path / "serving" / "notes").mkdir()
    return tmp_path / "serving"


def test_the_same_model_exported_anew(serving, tmp_path):
    again = export(tmp_path / "again")
    graphs = [pathlib.Path(p, "saved_model.pb").read_bytes() for p in (again, serving / "7")]
    assert graphs[0] != graphs[1]  # or the comparison of bytes would do
    found = find(again, str(serving))
    assert found == (str(serving / "7"), 7)


@pytest.mark.parametrize("change", [{"factor": 2.5}, {"name": "b"}, {"twice": True}])
def test_another_model(serving, tmp_path, change):
    assert find(export(tmp_path / "other", **change), str(serving)) is None


def test_only_the_newest_version_counts(serving, tmp_path):
    again = export(tmp_path / "again")
    export(serving / "10", factor=3.0)
    assert find(again, str(serving)) is None


def test_class_names_that_changed_places(serving, tmp_path):
    shutil.rmtree(serving / "7")
    export(serving / "7", name="class_1 class_2")
    assert find(export(tmp_path / "same", name="class_1 class_2"), str(serving))
    assert find(export(tmp_path / "other", name="class_2 class_1"), str(serving)) is None


def test_assets_belong_to_the_model(serving, tmp_path):
    again = pathlib.Path(export(tmp_path / "again"))
    for folder, words in ((again, "a"), (serving / "7", "b")):
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / "words").write_text(words)
    assert find(str(again), str(serving)) is None
    (again / "assets" / "words").unlink()
    assert find(str(again), str(serving)) is None


def test_a_version_that_is_no_model(serving, tmp_path):
    again = export(tmp_path / "again")
    (serving / "7" / "saved_model.pb").write_text("no model")
    assert find(again, str(serving)) is None
    (serving / "7" / "saved_model.pb").unlink()
    assert find(again, str(serving)) is None
    assert find(again, str(tmp_path / "none")) is None


def test_in_an_object_store(serving, tmp_path, folder_store):
    io_utils.copy_dir(str(serving / "7"), "minio://bucket/serving/7")
    again = export(tmp_path / "again")
    assert find(again, "minio://bucket/serving") == ("minio://bucket/serving/7", 7)
    assert find(export(tmp_path / "other", factor=9.0), "minio://bucket/serving") is None
    assert find(again, "minio://bucket/none") is None
