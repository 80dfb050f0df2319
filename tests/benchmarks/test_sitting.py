"""The sitting of all benchmarks, with small scripts in place of the real ones."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from processes import ran

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
WORDS = ("python benchmarks/engine/one.py",)


@pytest.fixture(scope="module")
def sitting():
    """The modules of a sitting; two scripts of the same names may be in other tests' path."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import run
        from sitting import page, plan, record, running

        yield SimpleNamespace(run=run, page=page, plan=plan, record=record, running=running)
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in [each for each in sys.modules if each.partition(".")[0] in ("run", "sitting")]:
            del sys.modules[name]


@pytest.fixture
def scripts(sitting, tmp_path, monkeypatch):
    """Makes benchmarks of short scripts, and gives the function that runs sittings of them."""
    root = tmp_path / "benchmarks"
    (root / "engine").mkdir(parents=True)
    measure = sitting.running.measure
    monkeypatch.setattr(sitting.run, "measure", lambda *given: measure(*given, root=root))
    output = tmp_path / "output"

    def sit(*words: str, java: bool = False, **sources: str) -> int:
        plan = []
        for name, source in sources.items():
            (root / "engine" / f"{name}.py").write_text(source)
            plan.append(sitting.plan.Benchmark(f"engine/{name}", f"About {name}", 0.05))
        plan = [each._replace(java=java and each.name == "one") for each in plan]
        return sitting.run.main(["--output", str(output), *words], plan)

    return SimpleNamespace(sit=sit, output=output, plan=sitting.plan)


def reports(value: float, better: str = "higher", name: str = "speed") -> str:
    return f"print(\"a | row\")\nprint('figures: {json.dumps({name: figure(value, better)})}')"


def figure(value: object, better: str = "higher") -> dict[str, object]:
    return {"value": value, "better": better}


def kept(output: pathlib.Path) -> dict[str, Any]:
    return json.loads((output / "results.json").read_text())


def test_it_writes_what_a_benchmark_printed_and_its_figures(scripts, capsys) -> None:
    assert scripts.sit(one=reports(2.0), two=reports(1234.5, "lower")) == 0
    found = kept(scripts.output)
    assert list(found) == ["one", "two"]
    assert found["one"]["outputs"] == [["a | row"]]
    assert found["one"]["figures"]["speed"]["value"] == 2.0
    assert len(found["one"]["load"]) == 2 and "Python" in found["one"]["stack"]
    page = (scripts.output / "RESULTS.md").read_text()
    assert "```text\na | row\n```" in page and "    python benchmarks/engine/one.py\n" in page
    assert "| [About two](#about-two) | speed | lower | 1,234 (" in page
    assert "[1 of 2, 0:00] one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys; sys.exit('no memory')", "exit code 1"),
        ("print('no figures')", "0 lines of figures"),
        (reports(1.0) + "\n" + reports(1.0), "2 lines of figures"),
        ("print('figures: {')", "unreadable figures"),
        ("print('figures: {}')", "no figures"),
        ("print('figures: 3')", "unreadable figures"),
        ('print(\'figures: {"a": {"value": NaN, "better": "lower"}}\')', "unreadable figures"),
        ('print(\'figures: {"a": {"value": true, "better": "lower"}}\')', "unreadable figures"),
        ('print(\'figures: {"a": {"value": 1, "better": "less"}}\')', "unreadable figures"),
        ("print('figures: {\"a\": 1}')", "unreadable figures"),
        ("import time; print('starts', flush=True); time.sleep(60)", "more than 0.05 minutes"),
    ],
)
def test_a_failure_keeps_the_others_and_the_old_section(scripts, capsys, source, reason) -> None:
    assert scripts.sit(one=reports(2.0), two=reports(3.0)) == 0
    before = kept(scripts.output)["one"]
    assert scripts.sit(one=source, two=reports(4.0)) == 1
    found = kept(scripts.output)
    assert found["one"] == before
    assert found["two"]["figures"]["speed"]["value"] == 4.0
    (line,) = (
        each for each in capsys.readouterr().out.splitlines() if each.startswith("failed: one")
    )
    assert reason in line


def test_what_a_failed_benchmark_wrote_is_shown(scripts, capsys) -> None:
    scripts.sit(one="import sys; sys.exit('no memory')")
    assert "no memory" in capsys.readouterr().out


def test_a_process_that_a_benchmark_leaves_does_not_stop_the_sitting(
    sitting, scripts, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(sitting.running, "END_SECONDS", 0.2)
    pid = tmp_path / "pid"
    leave = f"""
import pathlib, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({str(pid)!r}).write_text(str(left.pid))
"""
    try:
        assert scripts.sit(one=leave + reports(2.0)) == 0
        assert psutil.pid_exists(int(pid.read_text()))  # so nobody waited for it
    finally:
        psutil.Process(int(pid.read_text())).kill()


def test_only_runs_the_named_ones(scripts) -> None:
    assert scripts.sit("--only", "two", one=reports(2.0), two=reports(3.0)) == 0
    assert list(kept(scripts.output)) == ["two"]


def test_unknown_names_are_refused(scripts, capsys) -> None:
    with pytest.raises(SystemExit) as refused:
        scripts.sit("--only", "tow", one=reports(2.0), two=reports(3.0))
    assert refused.value.code == 2
    assert "two" in capsys.readouterr().err


def test_without_java_a_benchmark_is_skipped_by_name(scripts, sitting, capsys, monkeypatch) -> None:
    assert scripts.sit(one=reports(2.0), two=reports(3.0)) == 0
    before = kept(scripts.output)["one"]
    monkeypatch.setattr(sitting.plan.shutil, "which", lambda name: None)
    assert scripts.sit(java=True, one=reports(5.0), two=reports(3.0)) == 0
    assert kept(scripts.output)["one"] == before
    assert "skipped: one:" in capsys.readouterr().out


def test_a_sitting_in_which_nothing_ran_failed(scripts, sitting, monkeypatch) -> None:
    monkeypatch.setattr(sitting.plan.shutil, "which", lambda name: None)
    assert scripts.sit(java=True, one=reports(5.0)) == 1


def test_list_runs_nothing(scripts, capsys) -> None:
    assert scripts.sit("--list", one="import sys; sys.exit(1)") == 0
    assert "engine/one.py" in capsys.readouterr().out
    assert not (scripts.output / "results.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"one": 3}', '{"one": {"dates": "x"}}'])
def test_unreadable_results_are_refused_and_kept(scripts, sitting, capsys, text) -> None:
    scripts.output.mkdir()
    (scripts.output / "results.json").write_text(text)
    with pytest.raises(sitting.record.BadResults) as refused:
        sitting.record.load(scripts.output / "results.json")
    assert refused.value.file == scripts.output / "results.json"
    assert scripts.sit(one=reports(5.0)) == 1
    assert (scripts.output / "results.json").read_text() == text


def archives(folder: pathlib.Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return str(folder)


def test_archives_are_named_by_what_lacks_them(sitting, tmp_path) -> None:
    plan = {each.name: each for each in sitting.plan.PLAN}
    one = sitting.plan.folder_of_archives(archives(tmp_path / "a", "cifar-10-binary.tar.gz"))
    assert one == tmp_path / "a"
    assert plan["input_data"].missing(one) == ""
    assert "cifar-10-python" in plan["pipeline_overhead"].missing(one)
    assert "cifar-10-binary" in plan["recipe"].missing(None)
    assert plan["fit"].missing(None) == ""
    file = str(one / "cifar-10-binary.tar.gz")
    assert sitting.plan.folder_of_archives(file) == one


@pytest.mark.parametrize("name", ["", "nothing", "x.tar.gz"])
def test_a_folder_without_archives_is_refused(sitting, tmp_path, name) -> None:
    path = str(tmp_path / name)
    with pytest.raises(sitting.plan.NoArchive) as refused:
        sitting.plan.folder_of_archives(path)
    assert refused.value.value == path


def measured(sitting, value: float, commit: str = "", better: str = "higher", **more: Any) -> Any:
    figures = {"speed": sitting.record.Figure(value, better)}
    return sitting.record.Measurement("2026-11-24", WORDS, figures=figures, commit=commit, **more)


@pytest.mark.parametrize(
    ("better", "before", "now", "ratio", "worse"),
    [
        ("higher", 2.0, 1.91, 0.955, False),
        ("higher", 2.0, 1.89, 0.945, True),
        ("higher", 2.0, 3.0, 1.5, False),
        ("lower", 2.0, 2.09, 1.045, False),
        ("lower", 2.0, 2.11, 1.055, True),
        ("lower", 2.0, 1.0, 0.5, False),
        ("lower", 0.0, 0.0, None, False),
        ("lower", 0.0, 1.0, None, True),
        ("higher", -0.002, 0.002, None, False),
        ("higher", 0.002, -0.002, None, True),
    ],
)
def test_a_worse_figure_has_a_mark(sitting, better, before, now, ratio, worse) -> None:
    old, new = (measured(sitting, value, better=better) for value in (before, now))
    found = sitting.record.with_before(new, old)
    compared = found.figures["speed"]
    assert compared.ratio == (None if ratio is None else pytest.approx(ratio))
    assert compared.worse == worse
    assert ("**worse**" in sitting.page.note(found, compared)) == worse


def test_a_repetition_of_the_same_commit_hides_no_change(sitting) -> None:
    first, slow, again = (
        measured(sitting, value, commit)
        for value, commit in ((2.0, "aaa"), (1.0, "bbb"), (1.01, "bbb"))
    )
    slow = sitting.record.with_before(slow, first)
    again = sitting.record.with_before(again, slow)
    assert again.figures["speed"].before.value == 2.0
    assert again.figures["speed"].worse


def test_of_changed_code_without_a_commit_each_measurement_counts(sitting) -> None:
    old, new = (measured(sitting, value) for value in (2.0, 1.0))
    assert sitting.record.with_before(new, old).figures["speed"].before.value == 2.0


def test_other_arguments_and_versions_are_noted(sitting) -> None:
    old = dataclasses.replace(measured(sitting, 2.0), commands=("other",), stack="TFX 1")
    new = sitting.record.with_before(measured(sitting, 2.0, stack="TFX 2"), old)
    noted = sitting.page.note(new, new.figures["speed"]).split(", ")
    assert noted == ["other arguments", "other versions"]


def test_results_survive_the_file(sitting, tmp_path) -> None:
    given = measured(
        sitting, 2.0, "aaa", outputs=(("a", ""),), stack="S", load=(0.0, 1.5), seconds=3.0
    )
    given = sitting.record.with_before(given, measured(sitting, 1.0))
    sitting.record.save(tmp_path / "r.json", {"one": given})
    assert sitting.record.load(tmp_path / "r.json") == {"one": given}
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_output_with_a_fence_stays_in_its_block(sitting) -> None:
    found = dataclasses.replace(measured(sitting, 1.0), outputs=(("```", "## no heading"),))
    assert "````text\n```\n## no heading\n````" in sitting.page.section(found)


def test_figures_are_a_line_that_the_sitting_reads(sitting, capsys) -> None:
    import common

    common.figures(higher={"a": 1234567.0}, lower={"b": 0.000123456})
    line = capsys.readouterr().out.strip()
    found = sitting.record.parsed(line)
    assert {name: (each.value, each.better) for name, each in found.items()} == {
        "a": (1_235_000.0, "higher"),
        "b": (0.0001235, "lower"),
    }
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON"):
            common.figures(higher={"a": wrong})


def test_the_plan_has_every_script(sitting) -> None:
    there = {
        path.relative_to(BENCHMARKS).as_posix()
        for path in BENCHMARKS.glob("*/*.py")
        if path.stem != "common" and path.parent.name != "sitting"
    }
    assert {f"{each.script}.py" for each in sitting.plan.PLAN} == there
    names = [each.name for each in sitting.plan.PLAN]
    assert len(set(names)) == len(names)
    titles = [each.title for each in sitting.plan.PLAN]
    assert len(set(titles)) == len(titles)


def test_the_scripts_have_the_options_of_the_plan(sitting) -> None:
    for each in sitting.plan.PLAN:
        source = (BENCHMARKS / f"{each.script}.py").read_text()
        known = [*re.findall(r'"--([a-z-]+)"', source)]
        known += re.findall(r"(\w+)=", "".join(re.findall(r"= options\(([^)]*)\)", source)))
        for option in re.findall(r"--([a-z-]+)", " ".join(each.runs)):
            assert option in known, each.name


def test_every_remark_is_on_the_page(sitting) -> None:
    remarks = BENCHMARKS / "remarks"
    known = {remarks / each.group / f"{each.name}.md" for each in sitting.plan.PLAN}
    known |= {remarks / "introduction.md", remarks / "by_hand.md"}
    assert set(remarks.rglob("*.md")) <= known


def test_a_folder_is_read_at_a_glance() -> None:
    folders = [BENCHMARKS, *(path for path in BENCHMARKS.rglob("[!_]*") if path.is_dir())]
    for folder in folders:
        names = [path.name for path in folder.iterdir() if path.name != "__pycache__"]
        assert len(names) <= 15, folder


def test_the_page_has_the_present_results_and_remarks(sitting) -> None:
    results = sitting.record.load(BENCHMARKS / "results.json")
    assert set(results) <= {each.name for each in sitting.plan.PLAN}
    page = sitting.page.page(sitting.plan.PLAN, results, BENCHMARKS / "remarks")
    kept = (BENCHMARKS / "RESULTS.md").read_text()
    assert kept == page, "run: python benchmarks/run.py --page"
    links = re.findall(r"\]\(#([\w-]+)\)", page)
    anchors = {sitting.page.anchor(title) for title in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
    assert links and set(links) <= anchors


@pytest.mark.slow
def test_a_sitting_of_a_real_benchmark(tmp_path) -> None:
    words = ("--only", "planner_papers", "--output", tmp_path)
    done = ran(sys.executable, BENCHMARKS / "run.py", *words, cwd=tmp_path)
    assert "1 measured, 0 skipped, 0 failed" in done.stdout
    found = kept(tmp_path)["planner_papers"]
    assert set(found["figures"]) == {"median error, %", "largest error, %"}
    assert "planning/planner_papers.py" in (tmp_path / "RESULTS.md").read_text()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a commit; gives the function that runs git in it."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    names = ("-c", "user.name=a", "-c", "user.email=a@b")

    def git(*words: str) -> str:
        return ran("git", *names, *words, cwd=tmp_path).stdout.strip()

    (tmp_path / "benchmarks").mkdir()
    for name in ("code.py", "benchmarks/results.json"):
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    return git


def test_a_commit_stands_for_code_without_changes(sitting, checkout, tmp_path) -> None:
    head = checkout("rev-parse", "--short", "HEAD")
    root = tmp_path / "benchmarks"
    assert sitting.running.commit(root) == head
    (root / "results.json").write_text("2")
    assert sitting.running.commit(root) == head
    (tmp_path / "code.py").write_text("2")
    assert sitting.running.commit(root) == ""


def test_outside_of_a_checkout_there_is_no_commit(sitting, tmp_path) -> None:
    assert sitting.running.commit(tmp_path) == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
)
def test_a_signal_ends_the_benchmark_and_keeps_the_results(tmp_path, number) -> None:
    words = [sys.executable, str(BENCHMARKS / "run.py"), "--only", "soak"]
    words += ["--output", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "soak" not in (process.stdout.readline()):
        assert process.poll() is None
    process.stdout.readline()  # the header: the benchmark works
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait(60) == 130
    assert family and not any(each.is_running() for each in family)
    assert not (tmp_path / "results.json").exists()
