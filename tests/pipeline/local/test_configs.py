import importlib
import pathlib

import pytest

from stagecraft.pipeline import configs


@pytest.fixture
def reloaded(monkeypatch):
    yield lambda: importlib.reload(configs)
    monkeypatch.undo()
    importlib.reload(configs)


def test_names_and_paths_come_from_the_settings(reloaded, monkeypatch):
    for name in ("CONFIG", "SET", "OUTPUT"):
        monkeypatch.delenv(f"STAGECRAFT_{name}", raising=False)
    found = reloaded()
    assert found.PIPELINE_NAME == "quickstart"
    assert pathlib.Path("runs/quickstart/pipeline_root") == found.PIPELINE_ROOT
    assert pathlib.Path("runs/quickstart/metadata.db") == found.METADATA_PATH


def test_the_environment_chooses(reloaded, monkeypatch):
    monkeypatch.setenv("STAGECRAFT_CONFIG", "cifar10")
    monkeypatch.setenv("STAGECRAFT_SET", "train.steps=30 data.source='/my data/x.tar.gz'")
    monkeypatch.setenv("STAGECRAFT_OUTPUT", "/elsewhere")
    found = reloaded()
    assert found.PIPELINE_NAME == "cifar10"
    assert found.SETTINGS.train.steps == 30
    assert found.SETTINGS.data.source == "/my data/x.tar.gz"
    assert pathlib.Path("/elsewhere/pipeline_root") == found.PIPELINE_ROOT
