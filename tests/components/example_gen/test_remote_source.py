"""Sources in an object store: the same pictures and fingerprint as on disk."""

import pathlib

import numpy as np
import pytest
from tfx.dsl.io import fileio

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import source

PROPERTIES = {"dataset": "cifar10", "cache_dir": "", "sample_train": 0, "sample_test": 0}


def at(path: str) -> source.Source:
    return source.resolve(PROPERTIES | {"source": path})


def read(found: source.Source) -> tuple[np.ndarray, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    blocks = list(found.blocks(lambda done, total: told.append((done, total))))
    blocks.sort(key=lambda block: (block.part == "test", block.batch))
    return np.concatenate([block.planes for block in blocks]), told


@pytest.mark.parametrize("store", ["bucket", "folder_store"])
@pytest.mark.parametrize("scheme", ["minio", "s3"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_remote_source_is_read_as_a_local_one(store, scheme, packed, tiny, request):
    bucket = str(request.getfixturevalue(store)) if store == "bucket" else "bucket"
    request.getfixturevalue(store)
    local = (tiny.pack if packed else tiny.unpack)(tiny.binary())
    remote = f"{scheme}://{bucket}/data/cifar.tar.gz"
    for file in [pathlib.Path(local)] if packed else pathlib.Path(local).iterdir():
        fileio.copy(str(file), remote if packed else f"{remote}/{file.name}")
    planes, told = read(at(remote))
    assert np.array_equal(planes, tiny.planes)
    assert told[-1] == read(at(local))[1][-1]
    assert at(remote).fingerprint() == at(local).fingerprint()


def test_what_is_not_there(bucket):
    with pytest.raises(UserError, match="no such file") as caught:
        at(f"minio://{bucket}/x.tar.gz")
    assert caught.value.file == f"minio://{bucket}/x.tar.gz"


def test_a_truncated_one_is_refused(bucket, tiny):
    archive = pathlib.Path(tiny.pack(tiny.binary())).read_bytes()
    with fileio.open(f"minio://{bucket}/x.tar.gz", "wb") as stream:
        stream.write(archive[:-100])
    with pytest.raises(UserError, match=f"minio://{bucket}/x.tar.gz.*truncated"):
        read(at(f"minio://{bucket}/x.tar.gz"))
