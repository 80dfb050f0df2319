"""Downloads a published archive into a cache: resumed, retried, verified, atomic."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import pathlib
import re
import time
from typing import NamedTuple

import requests
import urllib3

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.archives.progress import LoggedProgress

_LOG = logging.getLogger(__name__)

_BY_HAND = "Download the archive by other means, and use its path as the source."
_SITE = "https://www.cs.toronto.edu/~kriz/"
_CHUNK = 1 << 18
_ATTEMPTS = 5
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for more bytes


class Published(NamedTuple):
    """A published archive."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]


_CIFAR10 = Published(_SITE + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
_CIFAR100 = Published(_SITE + "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8")

PUBLISHED = {"cifar10": _CIFAR10, "cifar100": _CIFAR100, "cifar100_coarse": _CIFAR100}
"""Published archives, by key of ``features.DATASETS``."""


def fetch(published: Published, cache_dir: str, *, backoff: float = 1.0) -> str:
    """The path of the archive in the cache, after downloading it if necessary.

    An interrupted download stays as ``NAME.part``, and the next call resumes it. If several
    processes call this at the same time, one downloads and the others wait.

    Args:
      backoff: seconds before the first retry; doubles with each retry.
    """
    folder = pathlib.Path(cache_dir).expanduser()
    path = folder / published.name
    if _is_right(path, published):
        return str(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f".{published.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees the lock of a dead process
            if not _is_right(path, published):  # another process may have been faster
                part = path.with_name(path.name + ".part")
                _download(published, part, backoff)
                os.replace(part, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            path.with_name(path.name + ".part").unlink(missing_ok=True)
        raise UserError(
            f"{folder}: cannot store {published.name}: {error.strerror or error}. Free space, or "
            "choose another folder as cache_dir.",
            setting="cache_dir",
            value=cache_dir,
            file=str(folder),
        ) from None
    return str(path)


def _is_right(path: pathlib.Path, published: Published) -> bool:
    if not path.exists():
        return False
    if _md5(path) == published.md5:
        return True
    _LOG.warning("%s is not the published archive; downloading it again", path)
    return False


def _download(published: Published, part: pathlib.Path, backoff: float) -> None:
    resumed = _size(part) > 0
    failures = 0
    while True:
        before = _size(part)
        try:
            _receive(published.url, part)
        except (requests.RequestException, urllib3.exceptions.HTTPError, EOFError) as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures == _ATTEMPTS:
                raise UserError(
                    f"{published.url}: cannot be downloaded: {error}. Tried {_ATTEMPTS} times; the "
                    f"next run resumes the download. {_BY_HAND} Or use the source sample.",
                    file=published.url,
                    suggestion="sample",
                ) from None
            resumed = resumed or _size(part) > 0
            pause = backoff * 2 ** (failures - 1)
            _LOG.warning("%s: %s; trying again in %.0f s", published.url, error, pause)
            time.sleep(pause)
            continue
        md5 = _md5(part)
        if md5 == published.md5:
            return
        part.unlink()
        if not resumed:
            raise UserError(
                f"{published.url}: the download has MD5 {md5}, but the published archive has "
                f"{published.md5}. A proxy may have changed the file, or the archive was replaced. "
                f"{_BY_HAND}",
                file=published.url,
                value=md5,
            )
        _LOG.warning(
            "%s: the resumed file has a wrong MD5; starting from the beginning", published.url
        )
        resumed = False


def _receive(url: str, part: pathlib.Path) -> None:
    """Appends the missing bytes to ``part``."""
    have = _size(part)
    # A content encoding would be decoded here, which changes the MD5.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        status = response.status_code
        if status == requests.codes.requested_range_not_satisfiable and have:
            return  # the file is complete; the caller checks the MD5
        if status in (408, 429) or status >= 500:
            raise requests.HTTPError(f"the server answered {status} {response.reason}")
        if status not in (200, 206):
            raise UserError(
                f"{url}: the server answered {status} {response.reason}. {_BY_HAND}",
                file=url,
                value=status,
            )
        content_range = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", "")
        )
        if status == 206 and content_range and int(content_range[1]) == have:
            total = int(content_range[2])
        else:
            have, total = 0, int(response.headers.get("Content-Length", 0))
            if status == 206:
                part.unlink()
                raise EOFError("the server sent a wrong range")
        progress = LoggedProgress("download", "bytes")
        with open(part, "ab" if have else "wb") as file:
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                file.write(chunk)
                have += len(chunk)
                progress(have, max(have, total))
    if have < total:
        raise EOFError(f"the connection ended after {have:,} of {total:,} bytes")


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _md5(path: pathlib.Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
