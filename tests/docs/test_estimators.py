"""The programs of the page on Estimators run as they stand, and are as short as it says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from reading import ROOT
from snippets import snippets

PAGE = ROOT / "docs" / "how-to" / "estimators.md"
FOLDER = ROOT / "docs" / "how-to" / "estimators"
FITS = (
    "workers",
    *(
        pytest.param(n, marks=pytest.mark.full)
        for n in ("stages", "replicas", "all_reduce", "canned")
    ),
)


def ran(folder: pathlib.Path, *words: object, **variables: str) -> str:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_program_trains(name: str, tmp_path: pathlib.Path) -> None:
    said = ran(tmp_path, sys.executable, FOLDER / f"{name}.py")
    loss = re.search(r"^loss (\S+)$", said, re.MULTILINE)
    assert loss is not None and float(loss[1]) < 10


@pytest.mark.slow
def test_a_checkpoint_predicts_as_before(tmp_path: pathlib.Path) -> None:
    said = ran(tmp_path, sys.executable, FOLDER / "checkpoint.py", tmp_path)
    # 3 * 100 + 100 + 7, and 3 * 50 + 0 + 7.
    assert said.splitlines()[-1] == "predictions [407.0, 157.0]"


@pytest.mark.full
def test_a_model_fn_in_a_pipeline(tmp_path: pathlib.Path, programs: pathlib.Path) -> None:
    for name in ("model_fn.py", "model_fn.yaml"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    ran(tmp_path, sys.executable, "model_fn.py")
    socket = str(programs / "socket")
    command = (programs / "stagecraft", "run", "--config", "model_fn.yaml")
    ran(tmp_path, *command, FORK_SERVER=socket)
    assert list(tmp_path.glob("runs/houses/pipeline_root/Trainer/model/*/Format-Serving"))


def test_the_programs_are_short_and_on_the_page() -> None:
    for path in FOLDER.iterdir():
        if path.is_file():
            assert len(path.read_text().splitlines()) <= 60
            assert f"(estimators/{path.name})" in PAGE.read_text()


def test_the_page_has_the_settings_of_its_model(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {each.title: each.text for each in snippets(PAGE.read_text())}
    (tmp_path / "income.py").write_text(found["income.py"])
    monkeypatch.syspath_prepend(tmp_path)
    import income

    blocks = [each.text for each in snippets(PAGE.read_text()) if each.language == "yaml"]
    (train,) = [yaml.safe_load(text)["train"] for text in blocks if "income:model" in text]
    expected = {key: value for key, value in income.INCOME.train_settings.items() if value}
    assert {key: train[key] for key in expected} == expected
