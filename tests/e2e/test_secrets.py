"""No file that a run leaves, and no command that shows it, has a secret of the settings."""

import pathlib

import pytest
from processes import ran
from support import STAGECRAFT, TINY, run

pytestmark = pytest.mark.slow

CANARIES = [f"c4n4ry-{number}-value" for number in range(6)]

PLANTED = (
    f"kubeflow.every_step.env={{HF_TOKEN: {CANARIES[0]}, PLAIN: {CANARIES[1]}}}",
    f"kubeflow.steps.Trainer.env.PROXY=http://me:{CANARIES[2]}@proxy:1",
    f"beam.args=[--s3_secret_access_key={CANARIES[3]}]",
    f"beam.unchecked_args=[--other={CANARIES[4]}, --password, {CANARIES[5]}]",
)


@pytest.mark.full
def test_no_secret_is_left(tmp_path):
    output = tmp_path / "out"
    done = run(output, settings=(*TINY, *PLANTED))
    assert "c4n4ry" not in done.stdout + done.stderr
    files = [path for path in output.rglob("*") if path.is_file()]
    assert {"metadata.db", "report.html", "record.json"} <= {path.name for path in files}
    leaks = [path for path in files if b"c4n4ry" in path.read_bytes()]
    assert leaks == []
    [log] = (output / "logs").iterdir()
    assert "--s3_secret_access_key=…" in log.read_text()  # TFX logs arguments, and did here
    page = pathlib.Path(done.result["report"]).read_text()
    assert "--password" in page and "kubeflow:" not in page
    assert "kubeflow.every_step.env=…" in page  # of the command, the name alone
    for words in (("history", output), ("history", output, "--json"), ("report", output)):
        shown = ran(STAGECRAFT, *words, cwd=tmp_path)
        assert "c4n4ry" not in shown.stdout + shown.stderr


def test_no_secret_is_left_by_a_failure(tmp_path):
    """The exception repeats a signed address; its cause is kept in metadata and in the log."""
    (tmp_path / "leaky.py").write_text(
        "def net(input_shape, num_classes):\n"
        "    raise ValueError('\\x1b[31mhttps://me:c4n4ry@host/x?sig=c4n4ry')\n"
    )
    output = tmp_path / "out"
    done = run(output, "--set", "train.model=leaky:net", "--to", "Trainer", path=tmp_path, code=1)
    for text in (done.result["error"], done.stderr):
        assert "c4n4ry" not in text and "https://…@host/x?sig=…" in text and "\x1b" not in text
    assert "c4n4ry" not in done.stdout
    left = [path for path in output.rglob("*") if path.is_file()]
    assert left
    assert [path for path in left if b"c4n4ry" in path.read_bytes()] == []
