"""What the report counts in statistics."""

import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from stagecraft.components import feature_statistics


@pytest.mark.parametrize(
    ("common", "expected"),
    [
        (
            {"num_non_missing": 5, "num_missing": 2, "tot_num_values": 5, "max_num_values": 1},
            (5, 2),
        ),
        (
            {"num_non_missing": 7, "num_missing": 0, "tot_num_values": 5, "max_num_values": 1},
            (5, 2),
        ),
        (
            {"num_non_missing": 7, "num_missing": 1, "tot_num_values": 0, "max_num_values": 0},
            (0, 8),
        ),
        (
            {"num_non_missing": 5, "num_missing": 2, "tot_num_values": 9, "max_num_values": 3},
            (5, 2),
        ),
    ],
)
def test_an_empty_list_is_a_missing_value(common, expected):
    given = statistics_pb2.FeatureNameStatistics(num_stats={"common_stats": common})
    assert feature_statistics.present(given) == expected
