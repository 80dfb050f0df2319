"""Object stores through TFX's fileio: an S3 server's, and a folder's in its place."""

import importlib
import os
import socket
import sys
import time

import pytest
from error_server import error_server
from google.protobuf import json_format
from tfx.components.pusher import executor as pusher
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import io_utils

from stagecraft.common.errors import UserError
from stagecraft.common.secrets import SecretInAddress
from stagecraft.components.object_store import filesystem, location


@pytest.fixture(params=["s3", "minio", "folder s3", "folder minio", "folder gs"])
def base(request: pytest.FixtureRequest) -> str:
    """An address under which nothing is yet."""
    *folder, scheme = request.param.split()
    bucket = "bucket"
    if folder:
        request.getfixturevalue("folder_store")
    else:
        bucket = request.getfixturevalue("bucket")
    return f"{scheme}://{bucket}/base"


def write(uri: str, content: bytes = b"content") -> str:
    with fileio.open(uri, "wb") as stream:
        stream.write(content)
    return uri


def content(uri: str) -> bytes:
    with fileio.open(uri, "rb") as stream:
        return bytes(stream.read())


def test_written_is_read(base):
    lines = "a\nß\n"
    with fileio.open(f"{base}/text", "w") as stream:
        stream.write(lines)
    with fileio.open(f"{base}/text") as stream:
        assert list(stream) == ["a\n", "ß\n"]
    assert content(f"{base}/text") == lines.encode()
    with fileio.open(f"{base}/text", "a") as stream:
        stream.write("b")
    assert content(f"{base}/text") == (lines + "b").encode()
    large = os.urandom(6 << 20)
    with fileio.open(write(f"{base}/large", large), "rb") as stream:
        stream.seek(5 << 20)
        assert stream.read(10) == large[5 << 20 :][:10]
        assert stream.tell() == (5 << 20) + 10
    assert content(f"{base}/large") == large


def test_folders_are_there_with_their_files(base):
    fileio.makedirs(f"{base}/folder")
    write(f"{base}/folder/file")
    write(f"{base}/folder/sub/deep")
    for there in ("", "/folder", "/folder/", "/folder/sub"):
        assert fileio.isdir(base + there) and fileio.exists(base + there)
    assert fileio.exists(f"{base}/folder/file") and not fileio.isdir(f"{base}/folder/file")
    for absent in ("/folder/fil", "/fold", "/folder/file/more"):
        assert not fileio.exists(base + absent) and not fileio.isdir(base + absent)
    assert fileio.listdir(f"{base}/folder") == ["file", "sub"]
    assert fileio.listdir(base) == ["folder"]


def test_a_marker_is_not_in_its_folder(bucket):
    """Consoles of object stores make empty folders as empty objects with a slash at the end."""
    store = location.locate(f"s3://{bucket}").store
    store.call_s3("put_object", Bucket=bucket, Key="folder/")
    assert fileio.isdir(f"s3://{bucket}/folder")
    assert fileio.listdir(f"s3://{bucket}/folder") == []
    write(f"s3://{bucket}/folder/file")
    assert list(fileio.walk(f"s3://{bucket}")) == [
        (f"s3://{bucket}", ["folder"], []),
        (f"s3://{bucket}/folder", [], ["file"]),
    ]
    fileio.rmtree(f"s3://{bucket}/folder")
    assert fileio.listdir(f"s3://{bucket}") == []
    assert fileio.isdir(f"s3://{bucket}")


def test_walk_and_glob(base):
    for name in ("x-1", "x-2", "sub/x-3", "sub/deep/y"):
        write(f"{base}/{name}")
    walked = [
        (base, ["sub"], ["x-1", "x-2"]),
        (f"{base}/sub", ["deep"], ["x-3"]),
        (f"{base}/sub/deep", [], ["y"]),
    ]
    assert list(fileio.walk(base)) == walked
    assert list(fileio.walk(base, topdown=False)) == walked[::-1]
    assert fileio.glob(f"{base}/x-*") == [f"{base}/x-1", f"{base}/x-2"]
    assert fileio.glob(f"{base}/*/x-[34]") == [f"{base}/sub/x-3"]
    assert fileio.glob(f"{base}/s*") == [f"{base}/sub"]
    assert fileio.glob(f"{base}/none*") == []
    errors: list[OSError] = []
    assert list(fileio.walk(f"{base}/none", onerror=errors.append)) == []
    assert isinstance(errors[0], fileio.NotFoundError)


def test_copy_rename_remove(base):
    write(f"{base}/one", b"1")
    write(f"{base}/two", b"2")
    fileio.copy(f"{base}/one", f"{base}/new/one")
    assert content(f"{base}/new/one") == b"1"
    for change in (fileio.copy, fileio.rename):
        with pytest.raises(OSError, match="overwrite is false"):
            change(f"{base}/one", f"{base}/two")
    fileio.copy(f"{base}/one", f"{base}/two", overwrite=True)
    assert content(f"{base}/two") == b"1"
    fileio.rename(f"{base}/two", f"{base}/three")
    assert fileio.listdir(base) == ["new", "one", "three"]
    fileio.rename(f"{base}/new", f"{base}/newer/still")
    assert content(f"{base}/newer/still/one") == b"1"
    fileio.remove(f"{base}/three")
    assert fileio.listdir(base) == ["newer", "one"]
    with pytest.raises(IsADirectoryError):
        fileio.remove(f"{base}/newer")
    with pytest.raises(NotADirectoryError):
        fileio.rmtree(f"{base}/one")
    fileio.rmtree(f"{base}/newer")
    assert fileio.listdir(base) == ["one"]


def test_stat(base):
    began = time.time()
    write(f"{base}/file", b"12345")
    stat = fileio.stat(f"{base}/file")
    assert (stat.length, stat.is_directory) == (5, False)
    # S3 tells whole seconds; a clock of the file system may lag by a tick.
    assert began - 2 < stat.mtime_nsec / 1e9 < time.time() + 2
    assert fileio.stat(base).is_directory


def test_not_found(base):
    for ask in (
        fileio.open,
        fileio.listdir,
        fileio.remove,
        fileio.rmtree,
        fileio.stat,
        lambda path: fileio.copy(path, f"{base}/copy"),
        lambda path: fileio.rename(path, f"{base}/renamed"),
    ):
        with pytest.raises(fileio.NotFoundError):
            ask(f"{base}/none")
    write(f"{base}/file")
    with pytest.raises(NotADirectoryError, match=f"{base}/file"):
        fileio.listdir(f"{base}/file")
    with pytest.raises(IsADirectoryError, match=base):
        fileio.open(base)


def test_a_bucket_that_is_not_there(bucket):
    assert not fileio.exists("s3://nobodys-bucket")
    assert not fileio.exists("s3://nobodys-bucket/file")
    with pytest.raises(fileio.NotFoundError, match=r"s3://nobodys\-bucket/file"):
        write("s3://nobodys-bucket/file")
    with pytest.raises(UserError, match="s3:///: names no bucket"):
        fileio.exists("s3:///")


def test_between_stores_and_disk(bucket, tmp_path):
    (tmp_path / "disk").write_bytes(b"1")
    fileio.copy(str(tmp_path / "disk"), f"minio://{bucket}/a")
    fileio.copy(f"minio://{bucket}/a", f"s3://{bucket}/b")
    fileio.copy(f"s3://{bucket}/b", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"1"


def test_what_another_process_writes_is_seen(bucket):
    import fsspec

    write(f"s3://{bucket}/folder/a")
    assert fileio.listdir(f"s3://{bucket}/folder") == ["a"]
    other = fsspec.filesystem(
        "s3",
        key="key",
        secret="secret",
        endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"],
        skip_instance_cache=True,
    )
    other.pipe_file(f"{bucket}/folder/b", b"")
    assert fileio.listdir(f"s3://{bucket}/folder") == ["a", "b"]
    assert fileio.exists(f"s3://{bucket}/folder/b")


def test_pointers(base, tmp_path):
    for folder in (base, str(tmp_path / "folder")):
        assert filesystem.read(f"{folder}/latest") is None
        for content in (b"long, long ago", b"now"):
            filesystem.write_atomically(f"{folder}/latest", content)
            assert filesystem.read(f"{folder}/latest") == content
        assert fileio.listdir(folder) == ["latest"]


def test_the_folder_is_laid_out_as_the_launchers_copies(folder_store):
    for scheme in ("gs", "s3", "minio"):
        write(f"{scheme}://bucket/a/{scheme}")
    files = (path for path in folder_store.rglob("*") if path.is_file())
    assert {str(path.relative_to(folder_store)) for path in files} == {
        "gcs/bucket/a/gs",
        "s3/bucket/a/s3",
        "minio/bucket/a/minio",
    }


def test_registering_twice_changes_nothing(bucket):
    from tfx.dsl.io import filesystem_registry

    filesystem.register()
    registry = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    assert registry.get_filesystem_for_path("s3://b/k") is filesystem.ObjectStore
    assert registry.get_filesystem_for_path("minio://b/k") is filesystem.ObjectStore
    for others in ("gs://b/k", "/k"):
        assert registry.get_filesystem_for_path(others).__name__ == "TensorflowFilesystem"


def test_tfx_pusher_pushes(base, tmp_path):
    saved = tmp_path / "model" / "Format-Serving"
    (saved / "variables").mkdir(parents=True)
    (saved / "saved_model.pb").write_bytes(b"graph")
    (saved / "variables" / "variables.index").write_bytes(b"index")
    model, pushed = standard_artifacts.Model(), standard_artifacts.PushedModel()
    model.uri, pushed.uri = str(tmp_path / "model"), str(tmp_path / "pushed")
    destination = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=f"{base}/serving")
    )
    pusher.Executor().Do(
        {"model": [model]},
        {"pushed_model": [pushed]},
        {"push_destination": json_format.MessageToJson(destination)},
    )
    [version] = fileio.listdir(f"{base}/serving")
    assert pushed.get_string_custom_property("pushed_destination") == f"{base}/serving/{version}"
    assert content(f"{base}/serving/{version}/saved_model.pb") == b"graph"
    assert content(f"{base}/serving/{version}/variables/variables.index") == b"index"
    write(f"{base}/serving/{version}/stale")
    io_utils.copy_dir(str(saved), f"{base}/serving/{version}")
    assert fileio.listdir(f"{base}/serving/{version}") == ["saved_model.pb", "variables"]


ADVICE = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.*AWS_ENDPOINT_URL_S3"
"""What every message ends with."""


@pytest.mark.parametrize(
    "ask", [fileio.exists, fileio.isdir, fileio.listdir, filesystem.read, write]
)
def test_nobody_answers(registry, aws, ask):
    assert callable(ask)
    filesystem.register()
    with pytest.raises(UserError, match="minio://b/k"):
        ask("minio://b/k")


@pytest.mark.parametrize("ask", [fileio.exists, filesystem.read, write])
def test_wrong_credentials(registry, aws, ask, monkeypatch):
    with error_server(403, "InvalidAccessKeyId", "Who?") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        filesystem.register()
        with pytest.raises(UserError, match=f"^s3://b/k: .* at {url} .*{ADVICE}"):
            ask("s3://b/k")


def test_no_credentials(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UserError, match="AWS_ACCESS_KEY_ID") as caught:
        fileio.exists(f"s3://{bucket}/k")
    assert caught.value.file == f"s3://{bucket}/k"


@pytest.mark.parametrize("module", ["fsspec", "s3fs"])
def test_packages_that_are_missing(registry, aws, module, monkeypatch):
    registered = importlib.import_module("fsspec.registry")
    monkeypatch.delitem(registered._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    filesystem.register()
    with pytest.raises(UserError, match="fsspec s3fs"):
        fileio.exists("s3://b/k")


def test_endpoints(aws, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://second")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://first")
    for uri in ("s3://b/k", "minio://b/k"):
        assert location.endpoint_of(uri) == "https://first"
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    assert location.endpoint_of("s3://b/k") == "http://second"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "store:9000")
    with pytest.raises(UserError):
        location.endpoint_of("s3://b/k")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert location.endpoint_of("s3://b/k") is None


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ((), "minio-service"),
        (("minio-service", "seaweedfs"), "minio-service"),
        (("seaweedfs",), "seaweedfs"),
    ],
)
def test_minio_is_what_kubeflow_brings_where_nothing_is_said(aws, there, expected, monkeypatch):
    def resolve(host: str, port: int) -> list[object]:
        if host.split(".")[0] not in there:
            raise socket.gaierror(host)
        return []

    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    location._kfp_endpoint.cache_clear()
    found = location.endpoint_of("minio://b/k")
    location._kfp_endpoint.cache_clear()
    assert found == f"http://{expected}.kubeflow:9000"


@pytest.mark.parametrize(
    "address", ["s3://key:c4n4ry@bucket/x", "minio://bucket/x?X-Amz-Signature=c4n4ry"]
)
def test_no_address_holds_credentials(folder_store, address):
    with pytest.raises(SecretInAddress) as refused:
        location.locate(address)
    assert "c4n4ry" not in str(refused.value) and "AWS_ACCESS_KEY_ID" in str(refused.value)
    assert list(folder_store.rglob("*")) == []
