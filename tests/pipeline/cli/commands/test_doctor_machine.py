from __future__ import annotations

import pathlib
import urllib.error

import pytest

from stagecraft.pipeline.checks import machine


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(machine.urllib.request, "urlopen", refuse)
    found = machine.Check("devices", "CPU:0")
    monkeypatch.setattr(machine, "devices", lambda: found)


def test_no_network_is_a_note(stagecraft):
    result = stagecraft("doctor", "--json")
    assert result.code == 0
    found = result.last_line
    assert found["ok"] is True
    assert found["checks"]["network"]["verdict"] == "note"
    assert "--data PATH" in found["checks"]["network"]["advice"]
    assert found["checks"]["stack"]["found"].startswith("tfx 1.")


def test_people_get_lines_and_advice(stagecraft):
    lines = stagecraft("doctor").stdout.splitlines()
    assert [line for line in lines if line.startswith("note    network")]
    assert lines[-1] == "everything that a run needs is here"


def test_a_missing_package_fails_it(stagecraft, monkeypatch):
    monkeypatch.setattr(machine, "_NEEDED", ("tfx", "no-such-package"))
    result = stagecraft("doctor")
    assert result.code == 1
    assert "not installed: no-such-package; run `make setup`" in result.stdout


def test_a_tensorflow_that_does_not_start_is_missing(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(machine, "_DEVICES", "raise ImportError('libx.so: not found')")
    assert machine.devices().verdict == "missing"
    assert "libx.so: not found" in machine.devices().found
    monkeypatch.setattr(machine, "_DEVICES", "print('devices: CPU:0, GPU:0')")
    assert machine.devices() == machine.Check("devices", "CPU:0, GPU:0")


def test_little_memory_and_disk_are_notes(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_available_bytes", lambda: 1e9)
    assert machine.memory().verdict == "note"
    usage = type(machine.shutil.disk_usage(tmp_path))(10, 9, 1)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: usage)
    assert machine.disk(pathlib.Path(tmp_path)).verdict == "note"
