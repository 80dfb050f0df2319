"""Each preset as it is compiled, against a file that people read.

``make golden`` writes the files anew; what has changed is then in the diff of the commit.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import re

import pytest

from stagecraft.pipeline.kubeflow.compiling import compile_pipeline
from stagecraft.pipeline.settings import load, presets

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "golden"


@pytest.mark.parametrize("preset", presets())
def test_a_preset_compiles_to_its_golden_file(preset: str, tmp_path: pathlib.Path) -> None:
    compile_pipeline(load(preset), tmp_path / "compiled.yaml")
    text = (tmp_path / "compiled.yaml").read_text()
    # Of the code and of TFX's version: they change with every commit and on each stack.
    text = re.sub(r"\b[0-9a-f]{64}\b", "FINGERPRINT", text)
    text = re.sub(r"(sdkVersion: tfx-).*", r"\1VERSION", text)
    text = re.sub(r'"_slice_sqls": null,\s', "", text)  # an option that newer TFDV has no more
    golden = FOLDER / f"{preset}.yaml"
    if os.environ.get("STAGECRAFT_GOLDEN") == "write":
        golden.write_text(text)
    diff = difflib.unified_diff(
        golden.read_text().splitlines(), text.splitlines(), str(golden), "compiled", lineterm=""
    )
    assert not (lines := list(diff)), "\n".join([*lines, "If this is meant: make golden"])
