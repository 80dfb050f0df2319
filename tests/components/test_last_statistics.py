"""The statistics that the data of a run are compared with: those of the last run that passed."""

import pathlib

import pytest
from recorded_runs import RecordedRuns
from tfx.types.standard_artifacts import ExampleAnomalies, ExampleStatistics

from stagecraft.components.resolvers import LastStatistics


class Days:
    """Days whose statistics a gate checked, each against those that passed before."""

    def __init__(self, folder: pathlib.Path, count: int):
        self.store, self._folder = RecordedRuns(), folder
        self.statistics: list[ExampleStatistics] = []
        self.verdicts: list[ExampleAnomalies] = []
        self._last: list[ExampleStatistics] = []  # that passed
        for _ in range(count):
            self.check(self.add())

    def add(self) -> ExampleStatistics:
        folder = self._folder / f"{len(self.statistics)}"
        folder.mkdir()
        self.statistics.append(self.store.execute([], ExampleStatistics, str(folder)))
        return self.statistics[-1]

    def check(self, statistics: ExampleStatistics) -> None:
        self.verdicts.append(self.store.execute([statistics, *self._last], ExampleAnomalies))
        self._last = [statistics]

    def found(self, day: int) -> int | None:
        """The day with which a day is compared."""
        given = {
            "statistics": [self.statistics[day]],
            "earlier": self.statistics,
            "anomalies": self.verdicts,
        }
        result = LastStatistics().resolve_artifacts(self.store, given)
        assert result["anomalies"] == []
        return self.statistics.index(result["earlier"][0]) if result["earlier"] else None


def test_the_last_day_that_passed(tmp_path):
    days = Days(tmp_path, 3)
    days.add()  # the gate stops it
    days.add()
    assert days.found(4) == 2
    days.check(days.statistics[4])
    assert [days.found(day) for day in range(5)] == [None, 0, 1, 4, 2], "a run that is repeated"
    pathlib.Path(days.statistics[1].uri).rmdir()
    assert days.found(2) == 0


@pytest.mark.parametrize("count", [3, 60])
def test_the_number_of_queries_does_not_grow_with_the_days(tmp_path, count):
    days = Days(tmp_path, count)
    days.add()
    assert days.found(count) == count - 1
    assert days.store.queries <= 6
