"""All commands refuse a wrong ``--data`` before anything starts."""

import os
import pathlib

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components import Cifar10ExampleGen
from stagecraft.components.example_gen import source
from stagecraft.pipeline.settings import SettingsError, load

HTTP = "https://host/cifar-10-binary.tar.gz"


@pytest.mark.parametrize("command", ["run", "compile"])
def test_an_address_of_http(stagecraft, command):
    ran = stagecraft(command, "--data", HTTP)
    assert ran.code == 1
    assert not list(pathlib.Path.cwd().iterdir())


@pytest.mark.parametrize("address", [HTTP, HTTP.replace("https", "http"), "ftp://host/x.tar.gz"])
def test_an_address_that_no_file_system_reads(address):
    with pytest.raises(SettingsError) as refused:
        load("quickstart", (f"data.source={address}",))
    assert refused.value.setting == "data.source"
    with pytest.raises(UserError) as caught:
        Cifar10ExampleGen(source=address)
    assert caught.value.value == address and "gs://" in caught.value.suggestion
    given = {"source": address, "dataset": "cifar10", "sample_train": 0, "sample_test": 0}
    with pytest.raises(UserError) as caught:
        source.resolve(given)  # a run on a cluster may have another address
    assert caught.value.value == address


@pytest.mark.parametrize("scheme", ["gs", "s3", "minio", "hdfs"])
def test_an_address_that_is_read(scheme):
    address = f"{scheme}://bucket/x.tar.gz"
    assert load("quickstart", (f"data.source={address}",)).data.source == address


def test_a_pipe_starts_nothing(stagecraft):
    os.mkfifo("pipe")
    ran = stagecraft("run", "--data", "pipe", "--output", "out")
    assert ran.code == 1 and "named pipe" in ran.stderr
    assert not pathlib.Path("out").exists()
