import pytest

from stagecraft.common.errors import UserError
from stagecraft.pipeline.local.cause import explain

RECORD = "record 7 has label 10"

IN_TEXT = """Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1495, in process
ValueError: first
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
stagecraft.common.errors.UserError: data.bin: record 7 has label 10 [while running 'Read/Map(f)']
"""


def raised(error, by):
    try:
        raise error from by
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UserError("x.tar.gz: truncated"), "x.tar.gz: truncated"),
        (UserError("record 7 [while running 'A/B'] [while running 'C']"), "record 7"),
        (raised(RuntimeError("outer"), UserError("inner")), "inner"),
        (RuntimeError(IN_TEXT), "data.bin: " + RECORD),
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (ValueError(), "ValueError"),
        (ValueError("\x1b[1mred\x1b[0m\x07"), "ValueError: red"),
        (RuntimeError(IN_TEXT.replace("UserError", "KeyError")), "KeyError: data.bin: " + RECORD),
    ],
)
def test_one_paragraph(error, cause):
    assert explain(error) == cause


def test_a_full_disk_is_said_plainly():
    full = OSError(28, "No space left on device", "/out/x")
    where = "no space left on the disk while writing /out/x; "
    assert explain(full).startswith(where)
    assert explain(raised(ValueError("could not save"), full)).startswith(where)
    for text in ("ResourceExhaustedError: No space left on device", "database or disk is full"):
        assert explain(RuntimeError(text)).startswith("no space left on the disk; ")


def test_a_long_message_is_shortened():
    assert len(explain(ValueError("x" * 10_000))) == 600


def test_a_cause_is_plain_and_without_secrets():
    said = explain(ValueError("\x1b[31mno\x1b[0m https://me:c4n4ry@host/x?sig=c4n4ry"))
    assert said == "ValueError: no https://…@host/x?sig=…"
    assert explain(UserError("a\x1b[2J\x07b: AWS_SECRET_ACCESS_KEY=c4n4ry")) == (
        r"a\x1b[2J\x07b: AWS_SECRET_ACCESS_KEY=…"
    )
