"""What README.md and docs/ say is so: settings, command lines, refusals, links."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import sys
from typing import Any

import click
import pytest
import yaml
from processes import ran
from pydantic import ValidationError
from reading import OPTIONAL, PAGES, ROOT, commands, name
from snippets import snippets

from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.cli.main import main
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.settings import ParallelSettings

TOPOLOGIES = ROOT / "docs" / "reference" / "parallel.md"
CHOICE = ROOT / "docs" / "how-to" / "topology.md"
ESTIMATORS = ROOT / "docs" / "how-to" / "estimators.md"
OWN_TASK = ROOT / "docs" / "how-to" / "own-task.md"
KUBEFLOW = ROOT / "docs" / "how-to" / "kubeflow.md"


@pytest.fixture(autouse=True)
def _modules_of_the_reader(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the modules importable that settings name as their task."""
    for page in (OWN_TASK, ESTIMATORS):
        for found in snippets(page.read_text()):
            if found.title.endswith(".py"):
                (tmp_path / found.title).write_text(found.text)
    monkeypatch.syspath_prepend(tmp_path)


def blocks(page: pathlib.Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [found.text for found in snippets(page.read_text()) if found.language == language]


def of_pages(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{name(page)}-{number}")
        for page in PAGES
        if name(page) not in OPTIONAL
        for number, block in enumerate(blocks(page, language))
    ]


def command_lines(page: pathlib.Path) -> list[str]:
    """Commands of ``stagecraft`` that settings are for, in fenced blocks."""
    lines = [line.strip() for line in commands(page)]
    ours = [line for line in lines if line.startswith("stagecraft ") and " tfx " not in line]
    return [line for line in ours if " || " not in line and "--help" not in line]


COMMAND_LINES = [
    pytest.param(page, line, id=f"{name(page)}-{number}")
    for page in PAGES
    if name(page) not in OPTIONAL
    for number, line in enumerate(command_lines(page))
]


def rows(page: pathlib.Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading."""
    section = page.read_text().split(f"\n## {heading}\n")[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def tree(text: str) -> dict[str, Any]:
    """Settings as a table writes them: sections, or the fields of ``parallel``."""
    given = yaml.safe_load(text)
    return given if given.keys() <= {"task", "train", "parallel"} else {"parallel": given}


def test_there_is_something_to_test() -> None:
    assert len(of_pages("yaml")) >= 5
    assert len(of_pages("json")) >= 2
    assert len(COMMAND_LINES) >= 10
    assert len(rows(TOPOLOGIES, "What is refused")) >= 20


@pytest.mark.parametrize("block", of_pages("yaml"))
def test_settings_can_be(block: str) -> None:
    PipelineSettings.model_validate(yaml.safe_load(block))


def parsed(command: click.Command, words: list[str]) -> dict[str, Any]:
    """What a command, or one below it, makes of its arguments."""
    name, *arguments = words
    if isinstance(command, click.Group):
        return parsed(command.commands[arguments[0]], arguments)
    return command.make_context(name, arguments).params


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_command_lines_can_be(page: pathlib.Path, line: str, tmp_path: pathlib.Path) -> None:
    given = parsed(main, shlex.split(line, comments=True))
    if "overrides" not in given:
        return
    config = given["config"]
    for found in snippets(page.read_text()):
        if found.title == config:
            config = str(tmp_path / found.title)
            pathlib.Path(config).write_text(found.text)
    settings = pipeline_settings.load(config, given["overrides"])
    if "topologies" in given:
        cases.select(given["topologies"], settings, steps=4, batch_size=16)


@pytest.mark.parametrize(
    "row", rows(TOPOLOGIES, "What is refused"), ids=lambda row: row[0].strip("`{}")
)
def test_refusals(row: list[str]) -> None:
    (refused,), (works,) = spans(row[0]), spans(row[2])
    with pytest.raises(ValidationError, match="use|name"):
        PipelineSettings.model_validate(tree(refused))
    PipelineSettings.model_validate(tree(works))


@pytest.mark.parametrize(
    "row", rows(CHOICE, "What you have, and what to set"), ids=lambda row: row[0]
)
def test_the_first_table(row: list[str]) -> None:
    fields = [span for span in spans(row[1]) if ":" in span]
    PipelineSettings.model_validate(tree("{" + ", ".join(fields) + "}"))


def test_every_parallel_setting_is_explained() -> None:
    text = TOPOLOGIES.read_text()
    for field in ParallelSettings.model_fields:
        assert f"`{field}`" in text or f"`{field}:" in text, field


@pytest.mark.parametrize("block", of_pages("json"))
def test_clusters_can_be(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from stagecraft.trainer_module.parallel import cluster

    monkeypatch.setenv("TF_CONFIG", block)
    found = cluster.read()
    assert found is not None
    assert found.index == json.loads(block)["task"]["index"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "row",
    (ROOT / "CONTRIBUTING.md").read_text().split("| to add |")[1].split("\n\n")[0].splitlines()[2:],
)
def test_where_something_is_added(row: str) -> None:
    paths = re.findall(r"`((?!common/`)[\w/.]+/[\w/.]*)`", row)
    assert paths
    for path in paths:
        assert list(ROOT.glob(path.replace("NAME", "*").replace("GROUP", "*"))), path


THREE_DEVICES = """
import json, sys
import numpy as np
import tensorflow as tf
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.settings import TrainingSettings

settings = TrainingSettings.model_validate(json.loads(sys.argv[1]))
train, parallel = settings.train, settings.parallel
devices = topology.resolve(parallel)
arguments = {"input_shape": (32, 32, 3), "num_classes": 10}
build = lambda scope: assemble(train, arguments, scope)
engine = make_engine(
    connect(devices, parallel), devices, settings, 1, build
)
rows = train.batch_size
images = np.random.default_rng(0).standard_normal((rows, 32, 32, 3), np.float32)
batch = Batch(images, np.arange(rows) % 10, np.ones(rows, np.float32))
# The first step is held against the plan, op by op.
engine.train(engine.feed(tf.data.Dataset.from_tensors(batch)), 1)
print(json.dumps({"devices": devices.devices, "cuts": engine.plan.cuts, "step": engine.step}))
"""


@pytest.mark.slow
def test_a_model_by_layers_over_three_devices() -> None:
    """The page's own example, with logical CPUs for the GPUs."""
    (block,) = [block for block in blocks(ESTIMATORS, "yaml") if "GPU:0,GPU:1,GPU:2\n" in block]
    given = yaml.safe_load(block.replace("GPU:", "CPU:"))
    given["parallel"]["virtual_devices"] = 3
    run = ran(sys.executable, "-c", THREE_DEVICES, json.dumps(given))
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "devices": ["CPU:0", "CPU:1", "CPU:2"],
        "cuts": ["block1_pool", "block2_pool"],
        "step": 1,
    }


def test_what_the_trainer_is_given_on_kubeflow(tmp_path: pathlib.Path) -> None:
    """The page shows settings, and what they compile to."""
    from stagecraft.pipeline.kubeflow.compile import compile_pipeline

    (tmp_path / "gpus.yaml").write_text(blocks(KUBEFLOW, "yaml")[0])
    settings = pipeline_settings.load(str(tmp_path / "gpus.yaml"))
    assert len(blocks(KUBEFLOW, "yaml")[0].splitlines()) <= 10
    compile_pipeline(settings, tmp_path / "compiled.yaml")
    spec, platform = yaml.safe_load_all((tmp_path / "compiled.yaml").read_text())
    shown_spec, shown_platform = yaml.safe_load_all(blocks(KUBEFLOW, "yml")[0])
    shown = shown_platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert {name: entry for name, entry in executors.items() if name in shown} == shown
    others = [set(executors[name]) - {"secretAsEnv"} for name in executors.keys() - shown]
    assert all(other == {"imagePullPolicy"} for other in others)
    resources = {
        name: executor["container"]["resources"]
        for name, executor in spec["deploymentSpec"]["executors"].items()
        if "resources" in executor["container"]
    }
    assert resources == {
        name: executor["container"]["resources"]
        for name, executor in shown_spec["deploymentSpec"]["executors"].items()
    }
