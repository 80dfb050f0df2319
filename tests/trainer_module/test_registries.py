import subprocess
import sys

import pytest

from stagecraft.trainer_module import registries

ALONE = """
import importlib, sys
from stagecraft.trainer_module import registries
modules = registries.code({})
entries = [name for name in modules if ".engines." not in name]
for name in ("parallel.topology", "models.initial_weights.source"):
    entries.append(f"stagecraft.trainer_module.{name}")
for name in entries:
    for each in [each for each in sys.modules if each.startswith("stagecraft.")]:
        del sys.modules[each]
    importlib.import_module(name)
    assert not {"tensorflow", "keras", "numpy"} & sys.modules.keys(), name
print(len(entries))
"""


@pytest.mark.parametrize("registry", registries.BY_SETTING.values(), ids=registries.BY_SETTING)
def test_entries_have_the_names_of_their_files(registry):
    entries = registry.built_in()
    assert [entry.name for entry in entries] == [
        entry.code[0].rpartition(".")[2] for entry in entries
    ]
    assert all(entry.description for entry in entries)
    assert entries


def test_each_file_can_be_imported_first_and_imports_nothing_heavy():
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 20
