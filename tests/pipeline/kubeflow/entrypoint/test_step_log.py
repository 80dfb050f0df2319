"""A step's log has what concerns its user."""

from __future__ import annotations

import logging
import sys

import pytest
from processes import ran

from stagecraft.pipeline.kubeflow.entrypoint import step_log

PROGRAM = """
from stagecraft.pipeline.kubeflow.entrypoint import step_log
step_log.configure()
import logging
import stagecraft.pipeline.kubeflow.entrypoint.run
logging.info("a line of the user")
logging.getLogger("stagecraft.training").info("a line of this project")
"""


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("INFO", marks=pytest.mark.full),
        pytest.param("DEBUG", marks=pytest.mark.full),
    ],
)
def test_imports_say_nothing(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(step_log.LEVEL, level)
    done = ran(sys.executable, "-c", PROGRAM)
    lines = [line.split(" ", 3)[-1] for line in done.stderr.splitlines()]
    assert lines[-2:] == ["a line of the user", "a line of this project"]
    assert (len(lines) == 2) == (level == "INFO"), lines[:5]


HELD = """
import os
from stagecraft.pipeline.kubeflow.entrypoint.step_log import holding_stderr
with holding_stderr():
    os.write(2, b"native line")
    {ending}
"""


@pytest.mark.parametrize(
    ("ending", "shown"),
    [
        ("pass", ()),
        ("raise ImportError('why')", ("native line", "ImportError: why")),
        ("os.kill(os.getpid(), 4)", ("Illegal instruction", "line 6")),
    ],
)
def test_native_lines(ending: str, shown: tuple[str, ...]) -> None:
    """The third ending is a processor that lacks an instruction."""
    stderr = ran(sys.executable, "-c", HELD.format(ending=ending), code=None).stderr
    assert all(text in stderr for text in shown)
    assert bool(stderr) == bool(shown)


@pytest.mark.parametrize(
    ("path", "level", "message", "shown"),
    [
        ("/opt/lib/site-packages/tfx/a.py", logging.INFO, "x", False),
        ("/opt/lib/site-packages/tfx/a.py", logging.WARNING, "x", True),
        ("/opt/lib/site-packages/tfx/a.py", logging.WARNING, step_log._KNOWN[0], False),
        ("/opt/lib/site-packages/stagecraft/a.py", logging.INFO, "x", True),
        ("/opt/lib/site-packages/mine/a.py", logging.INFO, "x", True),
        ("/home/me/tfx/a.py", logging.INFO, "x", True),
    ],
)
def test_what_concerns_the_user(path: str, level: int, message: str, shown: bool) -> None:
    record = logging.LogRecord("name", level, path, 1, message, None, None)
    assert step_log._concerns_user(record) is shown
