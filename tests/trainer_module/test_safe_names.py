import re

import pytest

from stagecraft.trainer_module import safe_names


@pytest.mark.parametrize("name", ["a", "area_m2", "X", "x" * 120])
def test_a_name_that_fits_stays(name):
    assert safe_names.safe(name) == name


@pytest.mark.parametrize("name", ["", " ", "1st", "_x", "a b", "a/b", "价格", "x" * 121, "\udcff"])
def test_another_name_is_like_it_and_fits(name):
    found = safe_names.safe(name)
    assert re.fullmatch(r"[A-Za-z]\w{0,119}", found, re.ASCII)
    assert safe_names.safe(found) == found


def test_names_that_differ_stay_apart():
    names = ["a b", "a-b", "a_b", "A_B", "a_B", "价格", "面积", "x" * 200, "x" * 201]
    found = safe_names.distinct(names)
    assert list(found) == names and found["a_b"] == "a_b"
    assert len({each.lower() for each in found.values()}) == len(names)
