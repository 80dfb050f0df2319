"""Which runs there are, and which of them is meant."""

import pytest
from past_runs import Output

from stagecraft.common.errors import UserError
from stagecraft.pipeline.history import runs


@pytest.fixture
def root(tmp_path):
    """Two output folders, at different depths, the first with two runs."""
    first = Output(tmp_path / "first")
    first.begin("2026-01-02T03:04:05.1")
    first.begin("2026-01-03T03:04:05.1")
    Output(tmp_path / "more" / "second").begin("2026-01-03T04:00:00.2")
    return tmp_path


def test_output_folders_are_found_at_any_depth_but_not_in_one_another(root):
    (root / "first" / "pipeline_root" / "deep").mkdir(parents=True)
    (root / "first" / "pipeline_root" / "deep" / "metadata.db").write_bytes(b"")
    assert runs.find_outputs(root) == [root / "first", root / "more" / "second"]
    assert runs.find_outputs(root / "first") == [root / "first"]


def test_newest_first_each_once(root):
    found, problems = runs.find_all([root, root / "first"])
    ids = [run.id for run in runs.list_runs(root / "first")]
    assert ids == ["2026-01-03T03:04:05.1", "2026-01-02T03:04:05.1"]
    assert [run.id for run in found] == ["2026-01-03T04:00:00.2", *ids]
    assert problems == []


def test_a_store_that_cannot_be_read_does_not_hide_the_others(root):
    broken = root / "broken"
    broken.mkdir()
    (broken / "metadata.db").write_bytes(b"no database" * 100)
    found, [problem] = runs.find_all([root])
    assert len(found) == 3
    assert str(broken / "metadata.db") in problem
    with pytest.raises(UserError):
        runs.find_all([broken])


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        ("{root}/first", "2026-01-03T03:04:05.1"),
        ("{root}/first@2026-01-02", "2026-01-02T03:04:05.1"),
        ("{root}/first@2026-01-02T03:04:05.1", "2026-01-02T03:04:05.1"),
        ("2026-01-03T04", "2026-01-03T04:00:00.2"),
    ],
)
def test_a_run_is_named_by_folder_or_id(root, text, run_id):
    assert runs.find(text.format(root=root), root).id == run_id


def test_a_folder_may_have_an_at_sign(tmp_path):
    Output(tmp_path / "a@b").begin("one")
    assert runs.find(f"{tmp_path}/a@b").id == "one"
    assert runs.find(f"{tmp_path}/a@b@one").id == "one"


def test_the_whole_id_comes_before_one_that_begins_so(tmp_path):
    output = Output(tmp_path)
    output.begin("one")
    output.begin("one-more")
    assert runs.choose(tmp_path, "one").id == "one"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-01-03", "more/second@.*first@"),
        ("2027", "2027: no such folder"),
        ("{root}", "metadata.db"),
        ("{root}/first@2027", "the newest are 2026-01-03T03:04:05.1"),
        ("{root}/first@2026", "2 runs"),
        ("{root}/first@", "the newest are 2026-01-03T03:04:05.1"),
        ("{root}/none@2026", "metadata.db"),
    ],
)
def test_a_name_of_no_run_or_of_several(root, text, said):
    with pytest.raises(UserError, match=said):
        runs.find(text.format(root=root), root)


def test_the_run_before(root):
    newest, first = runs.list_runs(root / "first")
    assert runs.previous(newest) == first
    with pytest.raises(UserError, match="two"):
        runs.previous(first)


def test_folders_without_runs(tmp_path):
    with pytest.raises(UserError, match="contains"):
        runs.find_outputs(tmp_path / "none")
    with pytest.raises(UserError, match="subfolders"):
        runs.find_outputs(tmp_path)
    with pytest.raises(UserError, match="2026"):
        runs.find("2026", tmp_path / "none")
    Output(tmp_path)
    with pytest.raises(UserError, match="yet"):
        runs.choose(tmp_path)
    assert runs.find_all([tmp_path]) == ([], [])
