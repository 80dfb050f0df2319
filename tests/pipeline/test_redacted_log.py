"""What TFX and Beam log of arguments has no values."""

import json
import logging
import sys

import pytest

from stagecraft.pipeline import redacted_log
from stagecraft.pipeline.redacted_log import Redaction

ARGUMENTS = (
    "--s3_secret_access_key=c4n4ry-1",
    "--other=c4n4ry-2",
    "--password",
    "c4n4ry-3",
    '--environment_config={"env": {"A": "c4n4ry-4"}}',
    "--flink_master=localhost:8081",
    "--runner",
    "direct",
)


@pytest.fixture
def redaction():
    made = Redaction()
    made.hide(ARGUMENTS)
    return made


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f'beam_pipeline_args: "{each}"' for each in ARGUMENTS),
        "\n".join(f"string_value: {json.dumps(each)}" for each in ARGUMENTS),
        f"Discarding unparseable args: {list(ARGUMENTS)}",
        "the key c4n4ry-1 is unknown, c4n4ry-3 is wrong",
        "https://me:c4n4ry@host/x?X-Amz-Signature=c4n4ry",
    ],
)
def test_values_are_left_out(redaction, text):
    left = redaction.redact(text)
    assert "c4n4ry" not in left and "…" in left


def test_other_text_stays(redaction):
    text = "cannot connect to localhost:8081; direct is the runner"
    assert redaction.redact(text) == text


def test_a_traceback(redaction, capsys):
    try:
        raise ValueError("https://me:c4n4ry@host")
    except ValueError:
        redacted_log.print_traceback(redaction)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback") and printed.endswith("https://…@host\n")


def test_each_handler_keeps_its_format(monkeypatch):
    handlers = [logging.StreamHandler(), logging.StreamHandler()]
    handlers[1].setFormatter(logging.Formatter("%(levelname).1s <%(message)s>"))
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers)
    redacted_log.install(ARGUMENTS)
    try:
        raise ValueError("c4n4ry-3")
    except ValueError:
        record = logging.LogRecord("x", 20, "", 0, "at %s", ("--other=c4n4ry-2",), sys.exc_info())
    plain, own = (handler.format(record) for handler in handlers)
    assert plain.startswith("at --other=…\nTraceback") and plain.endswith("ValueError: …")
    assert own.startswith("I <at --other=…>\n") and own.endswith("ValueError: …")
