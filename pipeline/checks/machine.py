"""Checks of this machine, for ``stagecraft doctor``. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

from stagecraft.components.example_gen.archives.download import PUBLISHED

_NEEDED = (
    "tfx",
    "tensorflow",
    "keras",
    "apache-beam",
    "tensorflow-transform",
    "tensorflow-data-validation",
    "tensorflow-model-analysis",
    "ml-metadata",
)

_DEVICES = (
    "import tensorflow as tf; "
    "print('devices:', ', '.join(d.name.removeprefix('/physical_device:')"
    " for d in tf.config.list_physical_devices()))"
)


@dataclasses.dataclass(frozen=True)
class Check:
    """A result: one line of output."""

    name: str
    found: str
    verdict: str = "ok"
    """``ok``; ``note``: some runs need it; ``missing``: every run needs it."""

    advice: str = ""


def all_checks(folder: pathlib.Path) -> Iterator[Check]:
    """All checks, quick ones first; ``folder`` is the one for runs."""
    yield python()
    yield stack()
    yield pip()
    yield processors()
    yield memory()
    yield disk(folder)
    yield network()
    yield devices()


def python() -> Check:
    """The interpreter, and its stack."""
    libc, version = platform.libc_ver()
    version_text = f"{platform.python_version()}, {libc or 'unknown C library'} {version}".rstrip()
    minor = sys.version_info[:2]
    if minor == (3, 10):
        return Check("python", f"{version_text}: classic stack")
    if minor == (3, 12):
        return Check("python", f"{version_text}: next stack")
    return Check("python", version_text, "note", "untested; use 3.10 or 3.12")


def stack() -> Check:
    """The versions of the packages that a run imports."""
    versions, missing = [], []
    for name in _NEEDED:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        advice = f"not installed: {', '.join(missing)}; run `make setup` in the project's folder"
        return Check("stack", ", ".join(versions) or "nothing", "missing", advice)
    return Check("stack", ", ".join(versions))


def pip() -> Check:
    """pip, which the ``tfx`` command and components with module files call."""
    if importlib.util.find_spec("pip"):
        return Check("pip", importlib.metadata.version("pip"))
    advice = "the tfx command and `module_file` need it; run `python -m ensurepip`"
    return Check("pip", "not in this environment", "note", advice)


def processors() -> Check:
    """The processors that this process may use."""
    return Check("processors", str(len(os.sched_getaffinity(0))))


def memory() -> Check:
    """The memory that is free now, within the container's limit."""
    gigabytes = _available_bytes() / 1e9
    if gigabytes < 3:
        advice = "a run needs up to 3 GB: free memory, or lower train.memory_limit_mb"
        return Check("memory", f"{gigabytes:.1f} GB available", "note", advice)
    return Check("memory", f"{gigabytes:.1f} GB available")


def _available_bytes() -> int:
    meminfo = pathlib.Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in meminfo)
    available = int(fields["MemAvailable"].split()[0]) * 1024
    group = pathlib.Path("/sys/fs/cgroup")  # version 2; "max" is no limit
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, int(limit) - used)


def disk(folder: pathlib.Path) -> Check:
    """The free space in the folder for runs, and whether it is writable."""
    gigabytes = shutil.disk_usage(folder).free / 1e9
    free = f"{gigabytes:.1f} GB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Check("disk", free, "note", "not writable: use `run --output` with another folder")
    if gigabytes < 2:
        return Check("disk", free, "note", "a run on the whole data set needs up to 2 GB")
    return Check("disk", free)


def network() -> Check:
    """Whether ``--data download`` can reach the published archive."""
    url = PUBLISHED["cifar10"].url
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=3):
            return Check("network", f"{url} answers")
    except urllib.error.HTTPError as error:
        reason = f"answers {error.code}"
    except (OSError, ValueError) as error:
        reason = f"not reachable ({getattr(error, 'reason', error)})"
    advice = "--data download does not work; use --data PATH, or the sample, which needs no network"
    return Check("network", f"{url} {reason}", "note", advice)


def devices() -> Check:
    """TensorFlow's devices, from another process."""
    try:
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _DEVICES],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check("devices", "no answer from TensorFlow in 120 s", "missing", "try again")
    for line in answer.stdout.splitlines():
        if line.startswith("devices: "):
            names = line.removeprefix("devices: ")
            if "GPU" in names:
                return Check("devices", names)
            advice = "no GPU: use the quickstart; docs/how-to/topology.md installs CUDA"
            return Check("devices", names, "note", advice)
    last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
    return Check("devices", f"TensorFlow does not start: {last}", "missing", "run `make setup`")
