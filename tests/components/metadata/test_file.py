"""A file that ML Metadata cannot work with: what is wrong with it is said."""

import functools
import pathlib
import sqlite3
import subprocess
import sys

import pytest
from past_runs import Output

from stagecraft.components.metadata import file
from stagecraft.components.metadata.file import MetadataFileError

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN " + sys.argv[2])
print("locked", flush=True)
sys.stdin.read()
"""

CRASH = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the end
connection.execute("BEGIN")
connection.execute("CREATE TABLE more (x)")
for _ in range(100):
    connection.execute("INSERT INTO more VALUES (randomblob(4000))")
os._exit(0)
"""


class MeetsTheEndOfAWrite(sqlite3.Connection):
    """A reader that found a journal, and then no lock."""

    meetings = 0

    def execute(self, *args):
        cls = type(self)
        if cls.meetings:
            cls.meetings -= 1
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return super().execute(*args)


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    """A store with a run."""
    Output(tmp_path).whole("R1")
    return tmp_path / "metadata.db"


def refused(path: pathlib.Path, *, write: bool = False) -> MetadataFileError:
    with pytest.raises(MetadataFileError) as caught:
        file.check(path, write=write)
    with pytest.raises(MetadataFileError) as opened:
        file.open_store(path, write=write)
    assert opened.value.problem == caught.value.problem
    assert caught.value.file == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "subset of tables" not in str(opened.value)
    return caught.value


def test_a_whole_one(store):
    before = store.read_bytes()
    for write in (False, True):
        file.check(store, write=write)
        assert len(file.open_store(store, write=write).get_contexts_by_type("pipeline_run")) == 1
    assert store.read_bytes() == before


@pytest.mark.parametrize("missing", [True, False])
def test_what_is_not_there_yet(tmp_path, missing):
    path = tmp_path / "metadata.db"
    if not missing:
        path.touch()
    file.check(path, write=True)
    with pytest.raises(MetadataFileError, match="empty"):
        file.open_store(path)
    assert file.open_store(path, write=True).get_executions() == []


def test_no_database(store):
    store.write_bytes(b"no database" * 100)
    found = refused(store)
    assert found.problem == "not SQLite"
    assert "pipeline_root" in str(found)


def test_one_whose_last_byte_is_missing(store):
    store.write_bytes(store.read_bytes()[:-1])  # SQLite itself reads it, with a zero there
    with pytest.raises(MetadataFileError) as caught:
        file.check(store)
    assert caught.value.problem == "truncated"


@pytest.mark.parametrize("left", [40, 99, 4096, 0.5])
def test_a_truncated_one(store, left):
    content = store.read_bytes()
    size = int(left * len(content)) if isinstance(left, float) else left
    store.write_bytes(content[:size])
    found = refused(store)
    assert found.problem == "truncated"
    assert f"({len(content[:size]):,}" in str(found)


def test_a_damaged_one(store):
    content = bytearray(store.read_bytes())
    third = len(content) // 3
    content[third : third + 20_000] = b"\xa5" * 20_000
    store.write_bytes(content)
    found = refused(store)
    assert found.problem == "damaged"
    assert "\n" not in str(found)


def test_a_damaged_page_that_opening_does_not_see(store):
    content = bytearray(store.read_bytes())
    content[-4096:] = bytes(4096)
    store.write_bytes(content)
    with pytest.raises(MetadataFileError) as caught:
        file.check(store)
    assert caught.value.problem == "damaged"


@pytest.mark.parametrize("version", [6, 99])
def test_another_version_of_the_schema(store, version):
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE MLMDEnv SET schema_version = ?", [version])
    with pytest.raises(MetadataFileError) as caught:
        file.open_store(store)
    assert caught.value.problem == "another schema"
    assert f"schema version {version} " in str(caught.value)


def test_the_database_of_another_program_is_not_written_to(tmp_path):
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(MetadataFileError) as caught:
        file.check(path, write=True)
    assert caught.value.problem == "not MLMD"
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "IMMEDIATE"])
@pytest.mark.parametrize("write", [False, True])
def test_a_locked_one_names_the_process(store, kind, write, monkeypatch):
    """A reader does not mind a writer that has not committed."""
    monkeypatch.setattr(file, "_PATIENCE_SECONDS", 0.0)
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, store, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout and other.stdin
        assert other.stdout.readline() == b"locked\n"
        if write or kind == "EXCLUSIVE":
            with pytest.raises(MetadataFileError) as caught:
                file.check(store, write=write)
            assert caught.value.problem == "locked"
            assert f"process {other.pid} (" in str(caught.value)
        else:
            file.check(store)
        other.stdin.close()
    file.check(store, write=write)


def test_a_folder_in_its_place(tmp_path):
    with pytest.raises(MetadataFileError) as caught:
        file.check(tmp_path)
    assert caught.value.problem == "unreadable"


@pytest.mark.parametrize("meetings", [1, 4])
def test_a_reader_that_meets_the_end_of_a_write_tries_again(store, monkeypatch, meetings):
    connect = functools.partial(sqlite3.connect, factory=MeetsTheEndOfAWrite)
    monkeypatch.setattr(sqlite3, "connect", connect)
    monkeypatch.setattr(MeetsTheEndOfAWrite, "meetings", meetings)
    file.check(store)
    assert MeetsTheEndOfAWrite.meetings == 0


def test_a_journal_of_a_crash_is_for_the_next_writer(store):
    subprocess.run([sys.executable, "-c", CRASH, store], check=True)
    assert pathlib.Path(f"{store}-journal").stat().st_size
    with pytest.raises(MetadataFileError) as caught:
        file.check(store)
    assert caught.value.problem == "unreadable"
    file.check(store, write=True)  # rolls it back
    file.check(store)
    assert len(file.open_store(store).get_contexts_by_type("pipeline_run")) == 1
