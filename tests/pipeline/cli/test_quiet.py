"""What TensorFlow's C++ code prints when it is imported."""

import os
import sys

import pytest
from processes import ran

NATIVE = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"

TENSORFLOW = f"""
import os
os.write(2, {NATIVE!r}.encode())
{{ending}}
"""

QUIET = """
import sys
from stagecraft.pipeline.cli import quiet
{how}
    import tensorflow.keras
    print(tensorflow.keras.__name__, tensorflow.__spec__.origin is not None)
print("later", file=sys.stderr)
"""


@pytest.fixture
def import_tensorflow(tmp_path):
    """Imports a TensorFlow that prints as 2.21 does, whatever the level is."""

    def import_tensorflow(ending="", how="quiet.hide_warnings()\nif True:", **variables):
        (tmp_path / "tensorflow").mkdir(exist_ok=True)
        (tmp_path / "tensorflow" / "__init__.py").write_text(TENSORFLOW.format(ending=ending))
        (tmp_path / "tensorflow" / "keras.py").write_text("")
        environment = os.environ | {"PYTHONPATH": str(tmp_path)} | variables
        if "TF_CPP_MIN_LOG_LEVEL" not in variables:
            environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        return ran(sys.executable, "-c", QUIET.format(how=how), code=None, env=environment)

    return import_tensorflow


@pytest.mark.parametrize("how", ["quiet.hide_warnings()\nif True:", "with quiet.quiet_imports():"])
@pytest.mark.parametrize("variables", [{}, {"TF_CPP_MIN_LOG_LEVEL": "2"}])
def test_an_answer_comes_without_lines_of_native_code(import_tensorflow, how, variables):
    done = import_tensorflow(how=how, **variables)
    assert (done.stdout, done.stderr) == ("tensorflow.keras True\n", "later\n")


def test_an_import_that_fails_shows_them(import_tensorflow):
    done = import_tensorflow("raise ImportError('libcudart.so.12: not found')")
    assert NATIVE in done.stderr and "libcudart.so.12: not found" in done.stderr


def test_a_user_may_ask_for_them(import_tensorflow):
    assert NATIVE in import_tensorflow(TF_CPP_MIN_LOG_LEVEL="0").stderr


def test_later_imports_are_not_quiet(import_tensorflow):
    """``stagecraft run`` reads settings quietly; its log has what TensorFlow says."""
    how = "with quiet.quiet_imports():\n    pass\nif True:"
    assert NATIVE in import_tensorflow(how=how).stderr
