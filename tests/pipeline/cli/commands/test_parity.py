"""``stagecraft parity``: names, table, exit code and JSON, with processes that compute nothing."""

import pathlib
import tempfile

import pytest

from stagecraft.trainer_module.parity import check

FAKE_WORKER = pathlib.Path(__file__).parents[3] / "trainer_module" / "parity" / "fake_worker.py"


@pytest.fixture
def parity(stagecraft, monkeypatch, tmp_path):
    """``parity("--json", mirrored="die")`` -> Ran."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # logs of failures are kept
    monkeypatch.setattr(check, "_WORKER", (str(FAKE_WORKER),))

    def parity(*arguments, **strategies):
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
    assert "mirrored-2: " in ran.stderr and "1.73" in ran.stderr


def test_what_stays_float32_is_told(parity):
    ran = parity("--topologies", "mirrored-2", one_device="casts")
    assert ran.code == 0
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("mirrored-2: ") and "attention0, attention1" in last


@pytest.mark.slow
def test_one_dies_and_its_log_is_kept(parity):
    ran = parity("--topologies", "mirrored-2,stages-2", mirrored="die")
    assert ran.code == 1
    assert "mirrored-2: " in ran.stderr and "exit code 4" in ran.stderr
    folder = pathlib.Path(ran.stderr.rpartition("logs: ")[2].strip())
    assert "noise" in (folder / "mirrored-2.log").read_text()


@pytest.mark.slow
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
    assert "grid-2x3 " in ran.stdout
    assert "configured" not in ran.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--topologies", "mirorred-2"),
        ("--set", "parity.steps=1"),
        ("--data", "/no/such/archive.tar.gz"),
    ],
)
def test_errors(stagecraft, refused, arguments):
    error = refused("parity", *arguments)
    answer = stagecraft("parity", *arguments, "--json", fake=["kill"]).last_line
    assert answer == {"equal": False, "error": error} | answer
