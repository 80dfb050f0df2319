import os

import pytest

from stagecraft.trainer_module.models.initial_weights.source import InitialWeightsError, Kind, find


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("w/m.keras", Kind.KERAS),
        ("w/m.weights.h5", Kind.WEIGHTS_H5),
        ("w/saved_model.pb", Kind.SAVED_MODEL),
        ("w/state.index", Kind.CHECKPOINT),
    ],
)
def test_kinds(file, kind, tmp_path):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_bytes(b"")
    named = path if file.endswith((".keras", ".h5")) else path.parent
    assert find(str(named)) == (kind, named)
    assert find(str(named)).files() == [path]


def test_a_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.keras").write_bytes(b"")
    assert find("~/m.keras").path == tmp_path / "m.keras"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ((), "gone.keras"),
        (("m.h5",), "m.h5"),
        (("m.pt",), "m.pt"),
        (("17/saved_model.pb",), "17/saved_model.pb"),
        (("7/state.index",), "7/state.index"),
        (("s/9/saved_model.pb", "s/17/x"), "s"),
        (("x/y",), "x"),
    ],
)
def test_refusals(files, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with pytest.raises(InitialWeightsError) as caught:
        find(named)
    assert (caught.value.setting, caught.value.file) == ("train.initial_weights", named)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "m.keras")
    with pytest.raises(InitialWeightsError) as caught:
        find(str(tmp_path / "m.keras"))
    assert caught.value.setting == "train.initial_weights"
