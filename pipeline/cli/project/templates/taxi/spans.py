"""Writes the trips of some months as spans: "python spans.py 3" writes data/span-3/trips.csv."""

import csv
import importlib.util
import pathlib
import sys

[TFX] = importlib.util.find_spec("tfx").submodule_search_locations
TABLE = pathlib.Path(TFX, "examples/chicago_taxi_pipeline/data/big_tipper_label/data.csv")

with TABLE.open(newline="") as table:
    header, *trips = csv.reader(table)
month = header.index("trip_start_month")
for span in sys.argv[1:]:
    folder = pathlib.Path("data", f"span-{span}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trips.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *(trip for trip in trips if trip[month] == span)])
