"""Dates agree with Python's own, for each format."""

import datetime
import random

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.mismatches import MismatchError, Observed
from stagecraft.trainer_module.data.tasks.tables import dates
from stagecraft.trainer_module.data.tasks.tables.dates import Date

DRAW = random.Random(0)
EPOCH = datetime.datetime(1970, 1, 1)
DAYS = [
    datetime.datetime(DRAW.randint(1000, 9999), DRAW.randint(1, 12), DRAW.randint(1, 28))
    + datetime.timedelta(microseconds=DRAW.randrange(86_400_000_000))
    for _ in range(500)
] + [
    datetime.datetime(2024, 2, 29),
    datetime.datetime(1900, 2, 28),
    datetime.datetime(2000, 2, 29),
    datetime.datetime(1969, 12, 31, 23, 59, 59),
    EPOCH,
]
FORMATS = (
    "%Y-%m-%d",
    "%d.%m.%Y %H:%M:%S.%f",
    "%B %d, %Y %I:%M %p",
    "%d-%b-%Y",
    "%Y%m%d%H%M%S",
    "day %d of %m (%Y)",
    "%H:%M",
)
PARTS = {
    "year": lambda day: day.year,
    "month": lambda day: day.month,
    "day": lambda day: day.day,
    "day_of_year": lambda day: day.timetuple().tm_yday,
    "weekday": lambda day: day.weekday(),
    "hour": lambda day: day.hour,
    "minute": lambda day: day.minute,
    "days": lambda day: (day - EPOCH) / datetime.timedelta(days=1),
}


@pytest.mark.parametrize("given", FORMATS)
def test_texts(given):
    written = [day.strftime(given) for day in DAYS]
    found, is_right = dates.instants(tf.constant(written), given)
    assert is_right.numpy().all()
    if "%Y" not in given:
        return
    read = [datetime.datetime.strptime(each, given) for each in written]
    expected = [(each - EPOCH) // datetime.timedelta(microseconds=1) for each in read]
    np.testing.assert_array_equal(found, expected)
    for part, of in PARTS.items():
        np.testing.assert_allclose(dates.part_of(found, part), [*map(of, read)], rtol=1e-15)


def test_zones_and_short_years():
    texts = ["2024-02-29T10:00:00+02:30", "2024-02-29T10:00:00Z", "2024-02-29T10:00:00-0530"]
    found, is_right = dates.instants(tf.constant(texts), "%Y-%m-%dT%H:%M:%S%z")
    hours = [7.5, 10, 15.5]
    start = dates.instants(tf.constant(["2024-02-29"]), "%Y-%m-%d")[0].numpy()
    np.testing.assert_array_equal((found - start) / 3_600_000_000, hours)
    assert is_right.numpy().all()
    years = dates.part_of(dates.instants(tf.constant(["68", "69", "00"]), "%y")[0], "year")
    assert years.numpy().tolist() == [2068, 1969, 2000]


@pytest.mark.parametrize("unit", dates.UNITS)
def test_whole_numbers(unit):
    found, _ = dates.instants(tf.constant([-1, 0, 7], tf.int64), unit)
    assert found.numpy().tolist() == [-dates.UNITS[unit], 0, 7 * dates.UNITS[unit]]


@pytest.mark.parametrize(
    ("given", "value", "unit"),
    [
        ("days", 1_700_000_000, "seconds"),
        ("days", 1_700_000_000_000_000, "microseconds"),
        ("seconds", 1_700_000_000_000, "milliseconds"),
        ("days", -719_163, None),
        ("days", 2_932_897, None),
        ("days", 20240131, "%Y%m%d"),
    ],
)
def test_a_number_of_another_unit(given, value, unit):
    [check] = Date(format=given).value_checks("d")
    found = check.accepts(tf.constant([value, 0, 18_000], tf.int64))
    assert found.numpy().tolist() == [False, True, True]
    with pytest.raises(tf.errors.InvalidArgumentError, match="the column d "):
        Date(format=given).result("d", {"d": tf.constant([value], tf.int64)})
    assert unit is None or check.suggest(str(value)) == unit


def test_digits_are_a_text():
    found, _ = dates.instants(tf.constant([20240229], tf.int64), "%Y%m%d")
    assert dates.part_of(found, "day").numpy().tolist() == [29]
    given = tf.constant([1022024, 31122024, 112024], tf.int64)
    found, is_right = dates.instants(given, "%d%m%Y")
    assert is_right.numpy().tolist() == [True, True, False]
    assert dates.part_of(found, "month").numpy().tolist()[:2] == [2, 12]
    hours = dates.instants(tf.constant([5, 930], tf.int64), "%H%M")[0]
    assert dates.part_of(hours, "hour").numpy().tolist() == [0, 9]


@pytest.mark.parametrize(
    "text",
    ["2023-02-29", "2024-02-30", "2024-13-01", "2024-00-10", "x", "2024-01-01 ", "0000-01-01"],
)
def test_a_text_that_is_no_date(text):
    date = Date()
    assert not dates.instants(tf.constant([text]), date.format)[1].numpy().any()
    with pytest.raises(tf.errors.InvalidArgumentError, match="opened"):
        date.result("opened", {"opened": tf.constant(["2024-01-01", text])})


def test_a_missing_date_has_its_own_ids():
    date = Date(numbers=[], categories=["year", "month", "weekday", "hour"])
    assert date.inputs("d") == {"d_year": 101, "d_month": 13, "d_weekday": 8, "d_hour": 25}
    found = date.result("d", {"d": tf.constant(["2024-01-31", ""])})
    assert {name: ids.numpy().ravel().tolist() for name, ids in found.items()} == {
        "d_year": [24, 100],
        "d_month": [0, 12],
        "d_weekday": [2, 7],
        "d_hour": [0, 24],
    }


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"format": "%Q"}, "format"),
        ({"format": "2024"}, "format"),
        ({"format": "%Y %y"}, "format"),
        ({"format": "%m %m"}, "format"),
        ({"format": 5}, "format"),
        ({"numbers": ["season"]}, "numbers"),
        ({"numbers": "days"}, "numbers"),
        ({"numbers": ["month"]}, "numbers"),
        ({"numbers": [], "categories": []}, "numbers"),
        ({"categories": ["days"]}, "categories"),
    ],
)
def test_wrong_arguments(arguments, setting):
    with pytest.raises(SettingError) as caught:
        Date(**arguments)
    assert caught.value.setting == f"task.args: {setting}"


@pytest.mark.parametrize(
    ("given", "values"),
    [("days", tf.constant(["1"])), ("seconds", tf.constant([1.5])), ("%Y", tf.constant([1.5]))],
)
def test_values_of_another_type(given, values):
    with pytest.raises(MismatchError) as caught:
        Date(format=given).result("d", {"d": values})
    assert (caught.value.value, caught.value.record) == (given, "d")
    kind = "BYTES" if values.dtype == tf.string else "FLOAT"
    task = Regression({"d": {"kind": "date", "format": given, "source": "s"}}, "y")
    [found] = task.mismatches({"s": Observed(kind), "y": Observed("FLOAT")})
    assert (found.setting, found.feature) == ("task.args.features.d.format", "s")


@pytest.mark.parametrize("given", ["%d.%m.%Y", "%Y-%m-%dT%H:%M:%S", "%d %B %Y", "%m/%d/%Y"])
def test_a_usual_format_is_guessed(given):
    assert dates.guess(datetime.datetime(2024, 6, 28).strftime(given)) == given
    assert dates.guess("soon") is None
