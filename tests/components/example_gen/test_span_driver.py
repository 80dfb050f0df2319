"""The driver of our ExampleGens finds a span, as TFX's driver does for its own."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from PIL import Image
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.types import standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components import ImageFolderExampleGen, TextExampleGen
from stagecraft.components.example_gen import driver, spans
from stagecraft.components.metadata import run_metadata


def run(component: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Properties of the execution and of the examples."""
    found = component.driver_class(None).run(
        ExecutionInfo(
            exec_properties=dict(component.exec_properties),
            output_dict={"examples": [standard_artifacts.Examples()]},
        )
    )
    [examples] = found.output_artifacts["examples"].artifacts
    return (
        run_metadata.values(found.exec_properties),
        run_metadata.values(examples.custom_properties),
    )


def text(folder: pathlib.Path, name: str, content: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    return f"{folder}/{{SPAN}}/v{{VERSION}}.txt"


def test_a_span_of_text_is_found_and_described(tmp_path):
    text(tmp_path, "1/v1.txt", "one")
    source = text(tmp_path, "2/v1.txt", "two")
    text(tmp_path, "2/v2.txt", "two again")
    newest, described = run(TextExampleGen(source, window=4))
    assert spans.told(described) == {"span": 2, "name": "2", "version": 2, "files": 1}
    chosen, _ = run(TextExampleGen(source, window=4, span="2"))
    assert chosen == newest, "how the span was chosen is no part of the cache key"
    older, first = run(TextExampleGen(source, window=4, span="1"))
    assert older["fingerprint"] != newest["fingerprint"]
    assert first[spans.SERIES] == described[spans.SERIES]
    _, other = run(TextExampleGen(source, window=5))
    assert other[spans.SERIES] != described[spans.SERIES]


def test_the_executor_reads_the_span_that_the_driver_found(tmp_path):
    source = text(tmp_path, "1/v1.txt", "one")
    text(tmp_path, "2/v1.txt", "two")
    properties, span = driver.located({"source": source, spans.SPAN: 1, driver.RANGE: ""})
    assert properties["source"] == f"{tmp_path}/1/v1.txt" and span.number == 1


def test_a_span_of_one_source_is_one_path(tmp_path):
    text(tmp_path, "1/a.txt", "a")
    text(tmp_path, "1/b.txt", "b")
    properties, _ = driver.located({"source": f"{tmp_path}/{{SPAN}}/*"})
    assert properties["source"] == f"{tmp_path}/1", "a folder of texts"
    with pytest.raises(UserError) as refused:
        driver.located({"source": f"{tmp_path}/{{SPAN}}/*.txt"})
    assert refused.value.setting == "source"


def test_folders_with_other_classes_are_another_series(tmp_path):
    for span, names in ((1, ("cat", "dog")), (2, ("cat", "dog")), (3, ("cat", "ant"))):
        for name in names:
            (folder := tmp_path / str(span) / name).mkdir(parents=True)
            Image.new("RGB", (2, 2)).save(folder / "1.png")
    series = [
        run(ImageFolderExampleGen(f"{tmp_path}/{{SPAN}}", span=str(span)))[1][spans.SERIES]
        for span in (1, 2, 3)
    ]
    assert series[0] == series[1] != series[2]
