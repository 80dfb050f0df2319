"""stagecraft init."""

from stagecraft.pipeline.cli.project import writing
from stagecraft.pipeline.cli.project.init import init


def test_it_says_what_to_do_next(stagecraft, tmp_path):
    ran = stagecraft("init", "trips", "--template", "taxi", "--name", "tips")
    assert ran.code == 0
    assert ran.stdout.split() == [
        *("project", "trips", "template", "taxi", "pipeline", "tips"),
        *("next", "cd", "trips", "make", "run"),
    ]
    assert (tmp_path / "trips" / "models" / "task.py").exists()


def test_an_error_is_one_sentence(stagecraft, tmp_path):
    (tmp_path / "file").touch()
    ran = stagecraft("init", ".")
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error: DIR: . is not empty: it has file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_empty_word_is_no_folder(stagecraft):
    """As of an unset variable of a shell; it would be the current folder."""
    assert stagecraft("init", "").code == 2


def test_help_describes_every_template():
    assert init.help is not None
    words = init.help.split()
    assert all(name in words for name in writing.templates())
    (option,) = (each for each in init.params if each.name == "template")
    assert all(name in option.help for name in writing.templates())
