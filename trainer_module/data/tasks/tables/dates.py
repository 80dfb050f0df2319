"""Dates and times as columns: texts of one format, or whole numbers since 1970.

TensorFlow has no op that reads a date, so regular expressions and arithmetic do it, in Transform's
graph. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch, MismatchError, Observed
from stagecraft.trainer_module.data.tasks.tables.column import (
    Column,
    ValueCheck,
    checked,
    dense,
    each,
    texts,
    z_scores,
)

UNITS: Mapping[str, int] = {
    "days": 86_400_000_000,
    "seconds": 1_000_000,
    "milliseconds": 1000,
    "microseconds": 1,
}
"""Formats of whole numbers since 1970-01-01: the microseconds of each."""

_DAY = UNITS["days"]
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST = (datetime.date.min.toordinal() - _EPOCH) * _DAY
_END = (datetime.date.max.toordinal() + 1 - _EPOCH) * _DAY
"""The years 1 to 9999 in microseconds since 1970-01-01, without the end."""

_MONTHS = tuple(datetime.date(2000, month, 1).strftime("%B").lower() for month in range(1, 13))

_ANY_MONTH = "|".join(_MONTHS)
_DIRECTIVES: Mapping[str, str] = {
    "Y": r"(\d{4})",
    "y": r"(\d{2})",
    "m": r"(\d{1,2})",
    "b": f"({'|'.join(month[:3] for month in _MONTHS)})",
    "B": f"({_ANY_MONTH})",
    "d": r"(\d{1,2})",
    "H": r"(\d{1,2})",
    "I": r"(\d{1,2})",
    "p": r"(am|pm)",
    "M": r"(\d{1,2})",
    "S": r"(\d{1,2})",
    "f": r"(\d{1,6})",
    "z": r"(z|[+-]\d{2}:?\d{2})",
}
"""Directives of ``datetime.strptime``, as regular expressions of one group, in any case."""

_WIDTHS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2}
"""Digits of the directives that a whole number may have."""

_SAME = ({"Y", "y"}, {"m", "b", "B"}, {"H", "I"})
"""Directives of which a format may have one."""

_USUAL = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%m/%d/%Y",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y",
    "%Y/%m/%d",
    "%Y%m%d",
    "%d-%b-%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%H:%M:%S",
    "%H:%M",
)
"""Formats that an error suggests."""


_USUAL_END = (datetime.date(2200, 1, 1).toordinal() - _EPOCH) * _DAY


class _Part(NamedTuple):
    """A part of a date, as a number or as a category."""

    ids: int | None
    """Ids of the category; None: it is only a number."""
    first: int = 0
    """The number of the id 0."""


PARTS: Mapping[str, _Part] = {
    "days": _Part(None),
    "year": _Part(100),  # of a century
    "month": _Part(12, 1),
    "day": _Part(31, 1),
    "day_of_year": _Part(366, 1),
    "weekday": _Part(7),
    "hour": _Part(24),
    "minute": _Part(60),
}
"""Parts in ``task.args``: ``days`` since 1970 with the time as a fraction; weekday 0 is Monday."""


@dataclasses.dataclass(frozen=True)
class Date(Column):
    """A date or a time, as inputs ``NAME_PART``: a missing value becomes the mean, or its own id.

    A text of another format is an error of TensorFlow that names the column and the text.
    """

    needs_numbers: ClassVar[bool] = False

    format: str = "%Y-%m-%d"
    """Of texts, with directives of ``datetime.strptime``; English names of months, and UTC for a
    text with ``%z``. Whole numbers may lack zeros at the start: 1022024 for ``%d%m%Y``. For whole
    numbers since 1970-01-01: ``days``, ``seconds``, ``milliseconds`` or ``microseconds``."""

    numbers: Sequence[str] = ("days",)
    """Parts that are numbers of mean 0 and variance 1."""

    categories: Sequence[str] = ("month", "weekday")
    """Parts that are ids. The id of a year is its place in the century."""

    def __post_init__(self) -> None:
        checks.of_type("task.args: format", self.format, str, "is not a text", "%Y-%m-%d")
        if self.format not in UNITS:
            _Format.of(self.format)
        for setting in ("numbers", "categories"):
            given = getattr(self, setting)
            use = f"a list of some of {', '.join(PARTS)}"
            checks.of_type(f"task.args: {setting}", given, (list, tuple), "is not a list", use)
            for part in given:
                if part not in PARTS:
                    raise SettingError(f"task.args: {setting}", part, "is no part of a date", use)
                if setting == "categories" and PARTS[part].ids is None:
                    problem, use = "has too many values for a category", f"numbers: [{part}]"
                    raise SettingError(f"task.args: {setting}", part, problem, use)
            object.__setattr__(self, setting, tuple(given))
        chosen = (*self.numbers, *self.categories)
        if not chosen or len(set(chosen)) < len(chosen):
            problem = "and categories are not one or more different parts"
            raise SettingError("task.args: numbers", chosen, problem, "numbers: [days]")

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """A number or an id for each part."""
        ids = {part: (PARTS[part].ids or 0) + 1 for part in self.categories}
        return {f"{name}_{part}": ids.get(part) for part in (*self.numbers, *self.categories)}

    def mismatches(
        self, name: str, observed: Mapping[str, Observed], train: str
    ) -> Iterable[Mismatch]:
        """A format that does not read values of the column's type."""
        source = self.source or name
        if source in observed and (found := _refusal(self.format, observed[source].kind)):
            yield Mismatch(f"task.args.features.{name}.format", self.format, source, *found)

    def value_checks(self, name: str) -> Iterable[ValueCheck]:
        """Whether each text is a date of the format."""
        source, setting = self.source or name, f"task.args.features.{name}.format"

        def accepts(values: Any) -> Any:
            import tensorflow as tf

            if _refusal(self.format, _KINDS[values.dtype.name]):  # `mismatches` gives it
                return tf.ones_like(values, tf.bool)
            return instants(values, self.format)[1]

        wanted = f"dates of the format {self.format}"
        return [ValueCheck(source, setting, self.format, wanted, accepts, guess)]

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """Z-scores and ids.

        Raises:
            MismatchError: the values have another type than the format.
        """
        import tensorflow as tf

        source = self.source or name
        observed = {source: Observed(_KINDS[raw.dtype.name])}
        if found := [*self.mismatches(name, observed, "train")]:
            raise MismatchError(found)

        def times(values: Any) -> Any:
            found, is_right = instants(values, self.format)
            given = tf.strings.reduce_join(tf.boolean_mask(texts(values), ~is_right)[:1])
            wrong = tf.strings.join(
                [f"the column {source} has a date that its format {self.format} is not of: ", given]
            )
            return checked(found, tf.reduce_all(is_right), wrong)

        found = each(raw, times)
        result = {}
        for part in self.numbers:
            values = each(found, lambda instant, part=part: part_of(instant, part))
            result[f"{name}_{part}"] = dense(z_scores(values), 0.0)
        for part in self.categories:
            ids, first = PARTS[part]
            assert ids is not None
            values = each(
                found,
                lambda instant, part=part, first=first, ids=ids: tf.math.floormod(
                    part_of(instant, part) - first, ids
                ),
            )
            result[f"{name}_{part}"] = dense(values, ids)
        return result


_KINDS = {"string": "BYTES", "int64": "INT", "float32": "FLOAT", "float64": "FLOAT"}
"""Types of a schema."""


def _refusal(given: str, kind: str) -> tuple[str, str] | None:
    """Problem and use of a format for values of a type; None: it fits."""
    if kind == "FLOAT":
        return "reads no decimal numbers", "texts, or whole numbers with a unit"
    if kind == "BYTES" and given in UNITS:
        return "reads no texts", "%Y-%m-%d"
    return None


class _Format(NamedTuple):
    """A format as a regular expression with a group for each directive."""

    pattern: str
    directives: tuple[str, ...]
    width: int
    """Digits of a whole number of this format; 0: unknown."""

    @classmethod
    def of(cls, text: str) -> _Format:
        """Parses a format.

        Raises:
            SettingError: it has an unknown directive, one twice, or none.
        """
        pattern, found, width = "", [], 0
        for literal, directive in re.findall(r"([^%]+)|%(.?)", text):
            if literal or directive == "%":
                pattern += re.escape(literal or "%")
                width += len(literal or "%")
                continue
            if directive not in _DIRECTIVES:
                known = ", ".join(f"%{each}" for each in _DIRECTIVES)
                problem = f"has the directive %{directive}, which has no place here"
                raise SettingError("task.args: format", text, problem, f"some of {known}")
            pattern += _DIRECTIVES[directive]
            width += _WIDTHS.get(directive, 0)
            found.append(directive)
        clashes = [group for group in _SAME if len(group & set(found)) > 1]
        if clashes or not found or len(set(found)) < len(found):
            problem = "does not have one or more different directives"
            use = "%Y-%m-%d; or days, seconds, milliseconds or microseconds since 1970"
            raise SettingError("task.args: format", text, problem, use)
        return cls(f"(?i)^{pattern}$", tuple(found), width if {*found} <= {*_WIDTHS} else 0)


def instants(values: Any, given: str) -> tuple[Any, Any]:
    """Microseconds since 1970-01-01 of dates, int64, and whether each is a date of the format.

    Args:
        values: texts or whole numbers ``[n]``.
        given: the format.
    """
    import tensorflow as tf

    if given in UNITS:
        unit = UNITS[given]
        is_right = (values >= _FIRST // unit) & (values < _END // unit)
        return tf.where(is_right, values, tf.zeros_like(values)) * unit, is_right
    form = _Format.of(given)
    if values.dtype.is_integer and form.width:
        values = tf.as_string(values, width=form.width, fill="0")
    else:
        values = texts(values)
    is_right = tf.strings.regex_full_match(values, form.pattern)
    part: dict[str, Any] = {}
    for place, directive in enumerate(form.directives, start=1):
        # RE2 names nine groups at most, as many as a format has.
        text = tf.strings.regex_replace(values, form.pattern, rf"\{place}")
        part[directive] = tf.strings.lower(text)

    def number(directive: str, otherwise: int) -> Any:
        if directive not in part:
            return tf.fill(tf.shape(values), tf.constant(otherwise, tf.int64))
        return tf.strings.to_number(tf.where(is_right, part[directive], "0"), tf.int64)

    year = number("Y", 1970)
    if "y" in part:  # as POSIX has it
        year = number("y", 0)
        year += tf.where(year < 69, tf.constant(2000, tf.int64), tf.constant(1900, tf.int64))
    month, day = number("m", 1), number("d", 1)
    named = part.get("b", part.get("B"))
    if named is not None:
        names = tf.constant([each[:3] for each in _MONTHS])
        same = tf.equal(tf.strings.substr(named, 0, 3)[:, tf.newaxis], names)
        month = tf.argmax(tf.cast(same, tf.int32), axis=1) + 1
    hour = number("H", 0)
    if "I" in part:
        is_right &= (number("I", 12) >= 1) & (number("I", 12) <= 12)
        hour = number("I", 12) % 12
        hour += 12 * tf.cast(tf.equal(part.get("p", ""), "pm"), tf.int64)
    minute, second = number("M", 0), number("S", 0)
    micros = _fraction(tf.where(is_right, part["f"], "0")) if "f" in part else 0
    offset = _offset(tf.where(is_right, part["z"], "z")) if "z" in part else 0
    after = _days(tf.where(month == 12, year + 1, year), month % 12 + 1, tf.ones_like(day))
    is_right &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    is_right &= (_days(year, month, day) < after) & (hour < 24) & (minute < 60) & (second < 60)
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute - offset) * 60 + second
    return seconds * 1_000_000 + micros, is_right


def _fraction(digits: Any) -> Any:
    import tensorflow as tf

    padded = tf.strings.substr(tf.strings.join([digits, "000000"]), 0, 6)
    return tf.strings.to_number(padded, tf.int64)


def _offset(zone: Any) -> Any:
    """Minutes east of UTC."""
    import tensorflow as tf

    digits = tf.strings.regex_replace(zone, "[^0-9]", "")
    number = tf.strings.to_number(tf.where(tf.equal(digits, ""), "0", digits), tf.int64)
    is_west = tf.equal(tf.strings.substr(zone, 0, 1), "-")
    return (number // 100 * 60 + number % 100) * tf.where(is_west, tf.constant(-1, tf.int64), 1)


def _days(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01.

    Hinnant 2021, "chrono-Compatible Low-Level Date Algorithms", days_from_civil: a year begins in
    March, 400 of them have 146097 days.
    """
    import tensorflow as tf

    year -= tf.cast(month <= 2, tf.int64)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day: the inverse of :func:`_days`, civil_from_days of the same source."""
    import tensorflow as tf

    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    since_march = (5 * of_year + 2) // 153
    month = (since_march + 2) % 12 + 1
    year = years + era * 400 + tf.cast(month <= 2, tf.int64)
    return year, month, of_year - (153 * since_march + 2) // 5 + 1


def part_of(instant: Any, part: str) -> Any:
    """A part of instants ``[n]``: int64, or float64 for ``days``."""
    import tensorflow as tf

    if part == "days":
        return tf.cast(instant, tf.float64) / _DAY
    days = instant // _DAY
    if part == "weekday":
        return (days + 3) % 7  # 1970-01-01 is a Thursday
    if part in ("hour", "minute"):
        minutes = (instant - days * _DAY) // 60_000_000
        return minutes // 60 if part == "hour" else minutes % 60
    year, month, day = _civil(days)
    if part == "day_of_year":
        return days - _days(year, tf.ones_like(month), tf.ones_like(day)) + 1
    return {"year": year, "month": month, "day": day}[part]


def guess(text: str) -> str | None:
    """A usual format of which a text is a date, or a unit; None: there is none."""
    for usual in _USUAL:
        with contextlib.suppress(ValueError):
            datetime.datetime.strptime(text, usual)
            return usual
    whole = int(text) if text.lstrip("-").isdigit() else _END
    return next((unit for unit, size in UNITS.items() if 0 <= whole * size < _USUAL_END), None)
