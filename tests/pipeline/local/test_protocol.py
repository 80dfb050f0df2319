"""Events as JSON lines in a pipe."""

import json
import logging
import os

import pytest

from stagecraft.pipeline.local import protocol


@pytest.fixture
def pipe():
    """The end to read from, of a pipe that events go to."""
    reading, writing = os.pipe()
    handler = protocol.PipeHandler(writing)
    logger = logging.getLogger("stagecraft")
    logger.addHandler(handler)
    yield reading
    logger.removeHandler(handler)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("note", {"text": "7 of 9 variables"}), ("node", {"node": "Trainer", "state": "running"})],
)
def test_an_event_is_a_line(pipe, kind, fields):
    protocol.emit(kind, "for the log", **fields)
    assert json.loads(os.read(pipe, 1000)) == {"kind": kind, **fields}
