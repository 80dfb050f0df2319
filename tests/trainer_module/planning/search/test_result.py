"""What people read of a search: the end of the table."""

import pytest
from chains import A100, chain, settings

from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.planning.search.result import result_text


@pytest.mark.parametrize(
    ("batch_size", "devices"),
    [(7, 3), (7, 1), (1, 1), (8, 4), (1, 64), (8, 3)],
    ids=["prime", "one device", "one example", "even", "fewer examples than devices", "odd"],
)
def test_the_best_topology_and_the_devices_that_it_uses(batch_size, devices):
    asked = settings(batch_size=batch_size, strategy="auto")
    found = automatic.search(chain(3, width=16), asked, hosts=1, devices=devices, accelerator=A100)
    given = asked.parallel.model_dump() | {"strategy": "one_device"}
    lines = result_text(found.found, "my_models:deep", given).splitlines()
    hints = [line for line in lines if "try train.batch_size" in line]
    missing = -batch_size % devices
    uses_all = found.found.best.devices == devices
    assert bool(hints) == (not uses_all and 0 < missing <= batch_size)
    for hint in hints:
        larger = int(hint.rpartition(" ")[2].rstrip("."))
        assert larger > batch_size and larger % devices == 0


def test_one_is_no_plural():
    asked = settings(batch_size=1, strategy="auto")
    found = automatic.search(chain(1), asked, hosts=1, devices=1).found
    assert (found.divisions, found.priced) == (1, 1)
    first = result_text(found, "deep", asked.parallel.model_dump()).splitlines()[0]
    assert "1 device," in first and "1 example " in first
