"""Every verb of TFX's command with both engines: it works, or TFX says that it does not."""

import json
from collections.abc import Callable
from typing import NamedTuple

import click
import pytest
from tfx.tools.cli.cli_main import cli_group
from tfx_project import SCHEMA, Project

NO = "Not supported for local orchestrator."


class Cell(NamedTuple):
    """What a verb does with an engine."""

    words: str
    """Behind the verb and the engine."""

    said: tuple[str, ...]
    left: Callable[[Project], bool] = lambda project: True
    """Whether that is then so on the server, or on disk."""

    before: tuple[str, ...] = ()
    """Commands."""


def args_of(project):
    """What TFX keeps of a local pipeline."""
    file = project.home / "tfx" / "local" / "tiny" / "pipeline_args.json"
    return json.loads(file.read_text()) if file.exists() else {}


def states(project):
    return [run.state for run in project.server.runs.values()]


def counts(project):
    """Of pipelines and versions."""
    return len(project.server.pipelines), len(project.server.versions)


def has_schema(project):
    return (project.present / "schema.pbtxt").read_text() == SCHEMA


NAMED = "--pipeline-name=tiny"
MADE = ("pipeline create --pipeline-path={file}",)
RAN = (*MADE, f"run create {NAMED}")
PRINTED = ("Path to schema: ", "SCHEMA FOR TINY", 'name: "image"')
TABLE = {
    ("pipeline create", "local"): Cell(
        "--pipeline-path={file}",
        ('Pipeline "tiny" created successfully.',),
        lambda project: args_of(project)["pipeline_root"] == str(project.folder / "output"),
    ),
    ("pipeline create", "kubeflow"): Cell(
        "--pipeline-path={file}",
        ("/#/pipelines/details/", 'Pipeline "tiny" created successfully.'),
        lambda project: counts(project) == (1, 1) and not list(project.present.iterdir()),
    ),
    ("pipeline update", "local"): Cell(
        "--pipeline-path={file}", ('Pipeline "tiny" updated successfully.',), before=MADE
    ),
    ("pipeline update", "kubeflow"): Cell(
        "--pipeline-path={changed}",
        ("/#/pipelines/details/", 'Pipeline "tiny" updated successfully.'),
        lambda project: counts(project) == (1, 2) and not list(project.present.iterdir()),
        MADE,
    ),
    ("pipeline delete", "local"): Cell(
        NAMED,
        ('Pipeline "tiny" deleted successfully.',),
        lambda project: args_of(project) == {},
        MADE,
    ),
    ("pipeline delete", "kubeflow"): Cell(
        NAMED,
        ('Pipeline "tiny" deleted successfully.',),
        lambda project: counts(project) == (0, 0),
        MADE,
    ),
    ("pipeline list", "local"): Cell("", ("\ntiny\n",), before=MADE),
    ("pipeline list", "kubeflow"): Cell("", ("\ntiny\n",), before=MADE),
    ("pipeline compile", "local"): Cell(
        "--pipeline-path={file}",
        ("Pipeline compiled successfully.",),
        lambda project: not list(project.present.iterdir()),
    ),
    ("pipeline compile", "kubeflow"): Cell(
        "--pipeline-path={file}",
        ("Pipeline compiled successfully.", "Pipeline package path: ", "pipeline.yaml"),
        lambda project: [path.name for path in project.present.iterdir()] == ["pipeline.yaml"],
    ),
    ("pipeline schema", "local"): Cell(NAMED, PRINTED, has_schema, (*MADE, "<run>")),
    ("pipeline schema", "kubeflow"): Cell(NAMED, PRINTED, has_schema, (*RAN, "<run>")),
    ("run create", "local"): Cell(
        NAMED,
        (),
        lambda project: any(project.folder.glob("output/Copy/report/*/file")),
        MADE,
    ),
    ("run create", "kubeflow"): Cell(
        f"{NAMED} --runtime-parameter=times=5",
        ("Run created for pipeline: tiny", "PENDING", "/#/runs/details/"),
        lambda project: project.server.run().runtime_config["parameters"] == {"times": 5},
        MADE,
    ),
    ("run terminate", "local"): Cell("--run-id=some", (NO,)),
    ("run terminate", "kubeflow"): Cell(
        "--run-id={run}",
        ("Run terminated.",),
        lambda project: states(project) == ["CANCELING"],
        RAN,
    ),
    ("run list", "local"): Cell(NAMED, (NO,)),
    ("run list", "kubeflow"): Cell(NAMED, ("| tiny ", "{run}", "PENDING"), before=RAN),
    ("run status", "local"): Cell(f"{NAMED} --run-id=some", (NO,)),
    ("run status", "kubeflow"): Cell(
        f"{NAMED} --run-id={{run}}", ("| tiny ", "{run}", "PENDING"), before=RAN
    ),
    ("run delete", "local"): Cell("--run-id=some", (NO,)),
    ("run delete", "kubeflow"): Cell(
        "--run-id={run}", ("Run deleted.",), lambda project: states(project) == [], RAN
    ),
}


def test_the_table_has_every_verb():
    verbs = {
        f"{group} {verb}"
        for group in ("pipeline", "run")
        for verb in cli_group.commands[group].commands
    }
    assert set(TABLE) == {(verb, engine) for verb in verbs for engine in ("local", "kubeflow")}


def finish(project, engine, store, salt="0"):
    """Leaves what a finished run leaves of its schema."""
    if engine == "local":
        folder = project.folder / "output" / "SchemaGen" / "schema" / "1"
    else:
        run = project.server.run()
        step = store / "minio" / "bucket" / "base" / "tiny" / run.id / "SchemaGen"
        folder = step / salt / "schema"
    folder.mkdir(parents=True)
    (folder / "schema.pbtxt").write_text(SCHEMA)


# A local run starts TFX anew.
SLOW = pytest.mark.slow
KINDS = [("local", "local.py"), ("kubeflow", "ours.py"), ("kubeflow", "plain.py")]
CELLS = [
    pytest.param(
        verb,
        engine,
        file,
        id=f"{verb}-{file}",
        marks=[SLOW] * ((verb, engine) == ("run create", "local")),
    )
    for (verb, kind), cell in TABLE.items()
    for engine, file in KINDS
    if engine == kind and (file != "plain.py" or verb.startswith("pipeline"))
]


@pytest.mark.parametrize(("verb", "engine", "file"), CELLS)
def test_cell(project, folder_store, monkeypatch, verb, engine, file):
    cell = TABLE[verb, engine]
    if engine == "kubeflow":  # by the environment, as schema has no --endpoint
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", project.server.url)
    path = project.folder / file
    changed = project.file("changed.py", path.read_text().replace("default=2", "default=3"))

    def filled(text):
        run = project.server.run().id if project.server.runs else ""
        return text.format(file=path, changed=changed, run=run)

    for command in cell.before:
        if command == "<run>":
            finish(project, engine, folder_store)
        else:
            done = project.tfx(*filled(command).split(), f"--engine={engine}")
            assert done.exit_code == 0, done.output
    words = filled(cell.words).split()
    done = project.tfx(*verb.split(), f"--engine={engine}", *words)
    assert done.exit_code == 0, done.output
    for text in cell.said:
        assert filled(text) in done.stdout
    assert cell.left(project)


@pytest.mark.parametrize("group", ["pipeline", "run"])
def test_verbs_take_an_engine(group):
    """Else a verb could not be in the table."""
    for command in cli_group.commands[group].commands.values():
        assert isinstance(command, click.Command)
        assert "engine" in {parameter.name for parameter in command.params}


def test_a_schema_of_an_old_backend(project, folder_store, monkeypatch):
    """Backends 2.0.0 to 2.3.0 write outputs one folder higher."""
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", project.server.url)
    file = f"--pipeline-path={project.folder / 'ours.py'}"
    for verb in (f"pipeline create {file}", "run create --pipeline-name=tiny"):
        assert project.tfx(*verb.split(), "--engine=kubeflow").exit_code == 0
    finish(project, "kubeflow", folder_store, salt="")
    done = project.tfx("pipeline", "schema", "--engine=kubeflow", "--pipeline-name=tiny")
    assert done.exit_code == 0, done.output
    assert (project.present / "schema.pbtxt").read_text() == SCHEMA
