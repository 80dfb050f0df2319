"""Downloads from a server on this machine, which serves or fails on request."""

import errno
import hashlib
import http.server
import pathlib
import threading
from collections.abc import Iterator

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.archives import download
from stagecraft.components.example_gen.archives.download import Published, fetch

CONTENT = bytes(range(256)) * 8_000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT. Each request takes the next of ``plan``; without one it is served well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan: list[str] = []
        self.content = CONTENT
        self.ranges: list[str | None] = []  # the Range header of every request so far

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        """Keeps the test's output quiet."""

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        action = self.server.plan.pop(0) if self.server.plan else "serve"
        content, start = self.server.content, 0
        if action.isdigit():
            self.send_error(int(action))
            return
        if self.headers["Range"] and action != "ignore range":
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            first = 0 if action == "wrong part" else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if action == "gzip header":
            self.send_header("Content-Encoding", "gzip")  # as some servers label a .tar.gz
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        self.wfile.write(body[: len(body) // 2] if action == "cut" else body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "*")
    with Server() as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield running
        running.shutdown()


def get(server: Server, cache: pathlib.Path, md5: str = MD5) -> str:
    return fetch(Published(server.url, md5), str(cache), backoff=0.0)


def kept(cache: pathlib.Path) -> list[str]:
    """What the cache holds, apart from the empty lock."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_downloads_once(server, tmp_path):
    cache = tmp_path / "a" / "b"
    for _ in range(2):
        path = get(server, cache)
        assert pathlib.Path(path).read_bytes() == CONTENT
    assert server.ranges == [None]
    assert kept(cache) == ["data.tar.gz"]


def test_a_read_only_cache_that_has_it_is_enough(tmp_path):
    (tmp_path / "data.tar.gz").write_bytes(CONTENT)
    fetch(Published("http://127.0.0.1:9/data.tar.gz", MD5), str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["data.tar.gz"]


def test_errors_of_the_server_are_retried(server, tmp_path):
    server.plan = ["503", "500", "429", "502"]
    get(server, tmp_path)
    assert len(server.ranges) == 5


def test_a_cut_connection_is_gone_on_from(server, tmp_path):
    server.plan = ["cut"] * 9  # more than the attempts without any progress that are made
    assert pathlib.Path(get(server, tmp_path)).read_bytes() == CONTENT
    assert server.ranges[:3] == [None, "bytes=1024000-", "bytes=1536000-"]


def test_a_download_of_an_earlier_run_is_gone_on_from(server, tmp_path):
    (tmp_path / "data.tar.gz.part").write_bytes(CONTENT[:1000])
    assert pathlib.Path(get(server, tmp_path)).read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]
    assert kept(tmp_path) == ["data.tar.gz"]


@pytest.mark.parametrize(
    ("name", "already", "plan"),
    [
        ("data.tar.gz", b"spoiled", []),
        *(("data.tar.gz.part", there, []) for there in (CONTENT, CONTENT + b"more", b"other" * 9)),
        ("data.tar.gz.part", CONTENT[:1000], ["ignore range"]),
        ("data.tar.gz.part", CONTENT[:1000], ["wrong part"]),
        ("else", b"", ["gzip header"]),  # nothing is decompressed on the way
    ],
    ids=["spoiled", "whole", "too long", "another", "no ranges", "wrong part", "gzip header"],
)
def test_what_is_kept_is_right(server, tmp_path, name, already, plan):
    (tmp_path / name).write_bytes(already)
    server.plan = plan
    assert pathlib.Path(get(server, tmp_path)).read_bytes() == CONTENT


def test_a_wrong_md5_leaves_nothing(server, tmp_path):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(UserError, match="published"):
        get(server, tmp_path)
    assert kept(tmp_path) == []
    assert len(server.ranges) == 1


def test_a_wrong_md5_after_resuming_is_tried_once_more(server, tmp_path):
    (tmp_path / "data.tar.gz.part").write_bytes(b"?" * 1000)
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(UserError, match="MD5"):
        get(server, tmp_path)
    assert server.ranges == ["bytes=1000-", None]
    assert kept(tmp_path) == []


def test_what_is_not_there_is_not_retried(server, tmp_path):
    server.plan = ["404"]
    with pytest.raises(UserError, match="404") as caught:
        get(server, tmp_path)
    assert (caught.value.file, caught.value.value) == (server.url, 404)
    assert len(server.ranges) == 1
    assert kept(tmp_path) == []


def test_gives_up_and_keeps_what_has_arrived(server, tmp_path):
    server.plan = ["cut", *["503"] * 5]
    with pytest.raises(UserError, match="503") as caught:
        get(server, tmp_path)
    assert caught.value.file == server.url
    assert kept(tmp_path) == ["data.tar.gz.part"]
    get(server, tmp_path)
    assert server.ranges[-1] == f"bytes={len(CONTENT) // 2}-"


def test_no_server(tmp_path):
    with pytest.raises(UserError, match="source sample"):
        fetch(Published("http://127.0.0.1:9/data.tar.gz", MD5), str(tmp_path), backoff=0.0)
    assert kept(tmp_path) == []


def test_a_full_disk_is_named_and_made_room_on(server, tmp_path, monkeypatch):
    def receive(url: str, part: pathlib.Path) -> None:
        part.write_bytes(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_receive", receive)
    with pytest.raises(UserError, match=r"data\.tar\.gz"):
        get(server, tmp_path)
    assert kept(tmp_path) == []


def test_a_cache_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        get(server, tmp_path / "file" / "cache")
    assert caught.value.setting == "cache_dir"


def test_several_at_a_time_download_once(server, tmp_path):
    # The lock belongs to an open file, so threads contend for it as processes do.
    paths: list[str] = []
    threads = [
        threading.Thread(target=lambda: paths.append(get(server, tmp_path))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [pathlib.Path(path).read_bytes() == CONTENT for path in paths] == [True] * 4
    assert server.ranges == [None]


def test_every_data_set_is_published():
    from stagecraft.schemas.features import DATASETS

    assert set(download.PUBLISHED) == set(DATASETS)
    assert all(len(published.md5) == 32 for published in download.PUBLISHED.values())
