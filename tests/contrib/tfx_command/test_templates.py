"""``tfx template``: TFX's templates and ours."""

import pytest

from stagecraft.pipeline.cli.project import writing

OURS = [f"stagecraft_{name}" for name in writing.templates()]


def copy(project, model, name, folder):
    words = (f"--model={model}", f"--pipeline-name={name}", f"--destination-path={folder}")
    return project.tfx("template", "copy", *words)


def test_list_has_both(project):
    listed = project.tfx("template", "list").stdout
    assert [line for line in listed.splitlines() if line.startswith("- ")] == [
        f"- {name}" for name in ("penguin", "taxi", *OURS)
    ]


def test_help_tells_them_apart(project):
    text = " ".join(project.tfx("template", "copy", "--help").stdout.split())
    assert all(name in text for name in OURS) and "TFX's own templates" in text


def test_ours_is_the_project_of_init(project, tmp_path):
    done = copy(project, "stagecraft_taxi", "trips", tmp_path / "copied")
    assert done.exit_code == 0, done.output
    writing.write(tmp_path / "written", "taxi", "trips")
    names = [path.relative_to(tmp_path / "written") for path in (tmp_path / "written").rglob("*.*")]
    assert len(names) > 10
    for name in names:
        assert (tmp_path / "copied" / name).read_text() == (tmp_path / "written" / name).read_text()


def test_tfx_s_taxi_is_not_shadowed(project, tmp_path):
    done = copy(project, "taxi", "my_taxi", tmp_path / "copied")
    assert done.exit_code == 0, done.output
    assert "stagecraft" not in (tmp_path / "copied" / "pipeline" / "pipeline.py").read_text()
    assert (tmp_path / "copied" / "data" / "data.csv").exists()


@pytest.mark.parametrize(
    ("model", "name", "option"),
    [
        ("stagecraft_taxy", "trips", "--model"),
        ("stagecraft_taxi", "my_trips", "--pipeline-name"),
        ("stagecraft_taxi", "trips", "--destination-path"),
    ],
)
def test_what_is_refused(project, tmp_path, model, name, option):
    folder = tmp_path / "copied"
    if option == "--destination-path":
        folder.mkdir()
        (folder / "file").touch()
    done = copy(project, model, name, folder)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert str(done.exception.code).startswith(f"{option}: ")
    assert folder.exists() is (option == "--destination-path")
