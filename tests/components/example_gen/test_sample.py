import numpy as np
import pytest

from stagecraft.components.example_gen.sample import to_example


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, "int64_list", [1]),
        (1.5, "float_list", [1.5]),
        (np.float32(1.5), "float_list", [1.5]),
        (np.int64(3), "int64_list", [3]),
        ([1, 2.5], "float_list", [1, 2.5]),
        (np.array([1.0, 2.0]), "float_list", [1, 2]),
        ("ä", "bytes_list", ["ä".encode()]),
        ((b"a", "b"), "bytes_list", [b"a", b"b"]),
    ],
)
def test_a_value_of_a_task_s_sample(value, kind, expected):
    feature = to_example({"x": value}).features.feature["x"]
    assert feature.WhichOneof("kind") == kind
    assert list(getattr(feature, kind).value) == expected


@pytest.mark.parametrize("value", [None, [], [None]])
def test_a_value_that_is_missing(value):
    assert to_example({"x": value}).features.feature["x"].WhichOneof("kind") is None
