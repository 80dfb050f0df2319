"""An artifact type with properties of its own, and components that write and read it."""

import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, OutputDict
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact
from tfx.types.artifact import Property, PropertyType


class Table(artifact.Artifact):
    """A table; a step finds the class by the name."""

    TYPE_NAME = "tables.Table"
    PROPERTIES = {
        "rows": Property(type=PropertyType.INT),
        "rate": Property(type=PropertyType.FLOAT),
        "name": Property(type=PropertyType.STRING),
    }


@component
def make_table(table: OutputArtifact[Table]):  # type: ignore[no-untyped-def]
    """Writes a file and all properties."""
    folder = pathlib.Path(table.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.csv").write_text("1")
    table.rows, table.rate, table.name = 3, 1.5, "a"
    table.set_string_custom_property("note", "b")


@component
def read_table(table: InputArtifact[Table]) -> OutputDict(equal=bool):  # type: ignore[valid-type]
    """Fails if a property is lost, or has another type."""
    received = (table.rows, table.rate, table.name, table.get_string_custom_property("note"))
    if received != (3, 1.5, "a", "b") or not isinstance(table.rows, int):
        raise ValueError(repr(received))
    return {"equal": (pathlib.Path(table.uri) / "rows.csv").read_text() == "1"}


@component
def count_files(table: InputArtifact[Table]) -> OutputDict(count=int):  # type: ignore[valid-type]
    """Fails unless the imported folder has two files, and the properties that the importer set."""
    names = sorted(path.name for path in pathlib.Path(table.uri).iterdir())
    if names != ["a.csv", "b.csv"] or (table.rows, table.name) != (2, "imported"):
        raise ValueError(repr((names, table.rows, table.name)))
    return {"count": len(names)}
