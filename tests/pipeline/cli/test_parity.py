"""``stagecraft parity``: names, table, exit code and JSON, with processes that compute nothing."""

from __future__ import annotations

import pathlib
import tempfile

import pytest

from stagecraft.pipeline import parity_data
from stagecraft.pipeline.settings import DataSettings
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parity import processes

FAKE_WORKER = pathlib.Path(__file__).parents[2] / "trainer_module" / "parity" / "fake_worker.py"


@pytest.fixture
def parity(stagecraft, monkeypatch, tmp_path):
    """``parity("--json", mirrored="die")`` -> Ran."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # logs of failures are kept
    monkeypatch.setattr(processes, "_WORKER", (str(FAKE_WORKER),))

    def parity(*arguments: str, **strategies: str):
        return stagecraft("parity", *arguments, fake=strategies)

    return parity


def test_all_equal(parity):
    ran = parity("--topologies", "mirrored-2,stages-2")
    assert ran.code == 0
    lines = ran.stdout.splitlines()
    assert any(line.endswith("s  mirrored-2: float32") for line in lines)
    assert [line.split()[-1] for line in lines[-3:]] == ["verdict", "equal", "equal"]


def test_one_differs(parity):
    ran = parity("--topologies", "mirrored-2,stages-2", mirrored="differs")
    assert ran.code == 1
    assert "mirrored-2: gradients after 0 steps, kernel: difference 1.73" in ran.stderr


def test_what_stays_float32_is_told(parity):
    ran = parity("--topologies", "mirrored-2", one_device="casts")
    assert ran.code == 0
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("mirrored-2: the model computes in float32 in attention0, attention1")


def test_one_dies_and_its_log_is_kept(parity):
    ran = parity("--topologies", "mirrored-2,stages-2", mirrored="die")
    assert ran.code == 1
    assert "mirrored-2: the process ended with exit code 4" in ran.stderr
    folder = pathlib.Path(ran.stderr.rpartition("logs: ")[2].strip())
    assert "noise" in (folder / "mirrored-2.log").read_text()


def test_json_is_the_last_line(parity):
    ran = parity("--topologies", "mirrored-2,stages-2", "--json", grid="differs")
    assert ran.code == 1
    assert len(ran.stdout.splitlines()) == 1
    found = ran.last_line
    assert found["equal"] is False
    assert [row["topology"] for row in found["topologies"]] == ["mirrored-2", "stages-2"]
    assert [row["equal"] for row in found["topologies"]] == [True, False]
    assert found["topologies"][1]["findings"][0]["variable"] == "kernel"


def test_the_configured_topology(parity):
    ran = parity(
        *("--topologies", "configured", "--set", "parallel.strategy=central_storage"),
        *("--set", "parallel.replicas=2", "--set", "parallel.virtual_devices=2"),
    )
    assert ran.code == 0
    assert "configured: start" in ran.stdout


def test_list(parity):
    ran = parity("--list")
    assert ran.code == 0
    assert "grid-2x3            two replicas of three stages" in ran.stdout
    assert "configured" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topologies", "mirorred-2"), "use mirrored-2"),
        (("--set", "parity.steps=1"), "parity.steps"),
        (("--data", "/no/such/archive.tar.gz"), "/no/such/archive.tar.gz: no such file"),
    ],
)
def test_what_cannot_be_is_refused(parity, arguments, message):
    ran = parity(*arguments, "--json")
    assert ran.code == 1
    assert message in ran.stderr
    assert message in ran.last_line["error"]
    assert ran.last_line["equal"] is False


def test_pictures_are_normalised(tmp_path):
    import numpy as np

    parity_data.save(DataSettings(), 24, tmp_path / "data.npz", 10)
    with np.load(tmp_path / "data.npz") as data:
        images, labels = data["images"], data["labels"]
    assert (images.shape, images.dtype) == ((192, 32, 32, 3), np.float32)
    assert (labels.shape, labels.dtype) == ((192,), np.int64)
    assert set(labels) <= set(range(10))
    # Each number was rounded to float32: by 2**-24 = 6e-8 of itself, and the largest is below 4.
    images = images.astype(np.float64)
    np.testing.assert_allclose(images.mean((0, 1, 2)), 0, atol=2.4e-7)
    np.testing.assert_allclose(images.std((0, 1, 2)), 1, atol=2.4e-7)


def test_pictures_come_from_an_archive(cifar10_small, tmp_path):
    archive = DataSettings(source=str(cifar10_small / "cifar-10-binary.tar.gz"))
    parity_data.save(archive, 16, tmp_path / "data.npz", 10)
    assert (tmp_path / "data.npz").exists()
    with pytest.raises(UserError, match="no such file"):
        parity_data.save(DataSettings(source="/none"), 16, tmp_path / "data.npz", 10)
