import os
import pathlib
import sys

import pytest
import yaml
from processes import ran

from stagecraft.pipeline.settings import PipelineSettings, load


def test_what_it_prints_is_a_config(stagecraft, tmp_path):
    result = stagecraft("config", "--config", "cifar10", "--set", "train.epochs=7")
    assert result.code == 0
    (tmp_path / "mine.yaml").write_text(result.stdout)
    assert load(str(tmp_path / "mine.yaml")) == load("cifar10", ("train.epochs=7",))
    assert yaml.safe_load(result.stdout)["train"]["epochs"] == 7


def test_a_folder_with_settings_needs_no_option(stagecraft):
    pathlib.Path("settings.yaml").write_text("{name: mine, train: {epochs: 3}}")
    shown = yaml.safe_load(stagecraft("config").stdout)
    assert (shown["name"], shown["train"]["epochs"]) == ("mine", 3)
    assert yaml.safe_load(stagecraft("config", "--config", "quickstart").stdout)["name"] != "mine"


def test_it_describes_every_setting(stagecraft):
    text = stagecraft("config", "--describe").stdout
    assert "train.optimizer  (text, default sgd)\n" in text
    assert "\n    adamw: Adam" in text
    assert "\n    flink: " in text
    for name in ("train.steps", "beam.args"):
        assert text.count(f"\n{name}  ") == 1

    def leaves(tree, prefix=""):
        found = []
        for key, value in tree.items():
            inner = isinstance(value, dict) and value
            found += leaves(value, f"{prefix}{key}.") if inner else [prefix + key]
        return found

    described = {paragraph.split()[0] for paragraph in text.split("\n\n")}
    assert described == set(leaves(PipelineSettings().model_dump(mode="json")))
    assert "\n    None" not in text


def test_secrets_are_left_out_and_have_to_be_put_back(stagecraft, tmp_path):
    secret = ("--set", "kubeflow.every_step.env.HF_TOKEN=c4n4ry")
    result = stagecraft("config", *secret)
    assert result.code == 0 and "c4n4ry" not in result.stdout + result.stderr
    (tmp_path / "mine.yaml").write_text(result.stdout)
    again = stagecraft("config", "--config", "mine.yaml")
    assert again.code == 1
    assert "every_step.env.HF_TOKEN" in again.stderr
    assert stagecraft("config", "--config", "mine.yaml", *secret).code == 0


@pytest.mark.slow
def test_a_module_that_settings_name_may_import_tensorflow(tmp_path):
    (tmp_path / "mine.py").write_text("import tensorflow\n\nTASK = 3\n")
    program = pathlib.Path(sys.executable).with_name("stagecraft")
    words = ("config", "--set", "task.name=mine:TASK")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = ran(program, *words, code=1, cwd=tmp_path, env=environment)
    assert done.stderr.splitlines()[-1].startswith("Error: --set task.name=mine:TASK: ")
    assert "rebuild TensorFlow" not in done.stderr and "TensorRT" not in done.stderr
