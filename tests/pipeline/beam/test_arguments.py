"""``beam.runner`` and ``beam.args``: what is refused, and what a pipeline gets."""

from __future__ import annotations

import importlib.metadata
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from beam_engines.java import JAR, jars
from pydantic import ValidationError

from stagecraft.common.errors import SettingError, setting_error
from stagecraft.pipeline.beam import RUNNERS, BeamSettings, arguments, beam_args
from stagecraft.pipeline.beam.runner import Given, Runner
from stagecraft.pipeline.settings import SettingsError, load

SECRET = "c4n4ry"
ROOT = pathlib.Path(__file__).resolve().parents[3]
GOOGLE = ("--project=p", "--region=r", "--temp_location=gs://b/t", "--sdk_container_image=i:1")


def refused(runner: str, *args: str) -> SettingError:
    """The error of some settings."""
    with pytest.raises(ValidationError) as caught:
        BeamSettings(runner=runner, args=args)
    [problem] = caught.value.errors()
    error = setting_error(problem)
    assert error is not None and SECRET not in f"{error} {error.value} {error.suggestion}"
    return error


@pytest.mark.parametrize(
    ("runner", "args", "value", "use"),
    [
        ("flink", ["--flink_masterr=h:1"], "--flink_masterr", "--flink_master"),
        ("flink", ["--flink_masterr", SECRET], "--flink_masterr", "--flink_master"),
        ("flink", ["--flink_m=h:1"], "--flink_m", "--flink_master"),
        ("direct", ["--direct_workers=2"], "--direct_workers", "--direct_num_workers"),
        ("direct", [f"--zzz={SECRET}"], "--zzz", "beam.unchecked_args"),
        ("direct", [SECRET], "…", "--NAME=VALUE"),
        ("direct", ["--flink_master=h:1"], "--flink_master", "beam.runner: flink"),
        ("direct", ["--job_endpoint=h:1"], "--job_endpoint", "beam.runner: flink or spark"),
        ("flink", ["--direct_num_workers=2"], "--direct_num_workers", "beam.runner: direct"),
        ("direct", ["--runner=DirectRunner"], "--runner", "beam.runner: "),
        ("direct", ["--runner", "DirectRunner"], "--runner", "beam.runner: "),
        ("flink", [f"--parallelism={SECRET}"], "--parallelism", "--parallelism=INTEGER"),
        ("flink", ["--parallelism"], "--parallelism", "--parallelism=INTEGER"),
        ("flink", [f"--flink_version={SECRET}"], "--flink_version", "--flink_version=1."),
        ("flink", [f"--object_reuse={SECRET}"], "--object_reuse", "--object_reuse, without"),
        ("flink", ["--execution_retry_delay=x"], "--execution_retry_delay", "--execution_retry"),
        ("flink", ["--job_endpoint=nowhere"], "--job_endpoint", "--job_endpoint=HOST:PORT"),
        ("flink", ["--job_endpoint=http://h:1"], "--job_endpoint", "--job_endpoint=HOST:PORT"),
        ("flink", ["--job_endpoint=h:1", "--environment_type=DOKCER"], "--environment_type",
         "--environment_type=DOCKER"),
        ("flink", ["--job_endpoint=h:1", f"--environment_type={SECRET}"], "--environment_type",
         "--environment_type=DOCKER | PROCESS | EXTERNAL | LOOPBACK"),
        ("flink", ["--flink_master=h:8081"], "--environment_type=DOCKER",
         "--environment_config=IMAGE"),
        ("spark", ["--spark_master_url=spark://h:1"], "--environment_type=DOCKER",
         "--environment_config=IMAGE"),
        ("flink", ["--job_endpoint=h:1", "--environment_type=PROCESS"],
         "--environment_type=PROCESS", '--environment_config={"command": "PATH"}'),
        ("flink", ["--job_endpoint=h:1", "--environment_type=PROCESS",
                   f"--environment_config={SECRET}"], "--environment_type=PROCESS",
         '--environment_config={"command": "PATH"}'),
        ("flink", ["--job_endpoint=h:1", "--environment_type=EXTERNAL"],
         "--environment_type=EXTERNAL", "--environment_config=HOST:PORT"),
        ("flink", ["--job_endpoint=h:1", "--environment_type=EXTERNAL",
                   f"--environment_config={SECRET}"], "--environment_config",
         "--environment_config=HOST:PORT"),
        ("dataflow", [*GOOGLE[:2], "--temp_location=/tmp", GOOGLE[3]], "--temp_location",
         "--temp_location=gs://BUCKET/FOLDER"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(runner: str, args: list[str], value: str, use: str) -> None:
    error = refused(runner, *args)
    assert (error.setting, error.value) == ("beam.args", value)
    assert error.suggestion.startswith(use)


@pytest.mark.parametrize(
    ("runner", "args", "uses"),
    [
        ("flink", (), ["--job_endpoint=", "--flink_master=", "--flink_job_server_jar="]),
        ("flink", ("--parallelism=2",), ["--job_endpoint="]),
        ("spark", (), ["--job_endpoint=", "--spark_master_url=", "--spark_job_server_jar="]),
        ("dataflow", (), ["--project", "--region", "--temp_location", "--sdk_container_image"]),
        ("dataflow", GOOGLE[:1], ["--region", "--temp_location"]),
        ("dataflow", GOOGLE[:3], ["--sdk_container_image=IMAGE"]),
    ],
)
def test_a_runner_says_what_it_needs(runner: str, args: tuple[str, ...], uses: list[str]) -> None:
    error = refused(runner, *args)
    assert (error.setting, error.value) == ("beam.runner", runner)
    assert all(each in error.suggestion for each in uses)


@pytest.mark.parametrize(
    ("runner", "args", "image"),
    [
        ("direct", (), "unused"),
        ("direct", ("--direct_num_workers=2", "--s3_endpoint_url=http://h:1"), "unused"),
        ("flink", ("--flink_master=[local]", "--parallelism=2"), "unused"),
        ("flink", ("--job_endpoint=h:1", "--environment_type=LOOPBACK"), "unused"),
        ("flink", ("--job_endpoint=h:1", "--number_of_execution_retries=3", "--object_reuse"),
         "unused"),
        ("flink", ("--flink_master=h:1", "--environment_config=r/i:1"), "r/i:1"),
        ("flink", ("--flink_master=h:1", "--environment_option=docker_container_image=r/i:1"),
         "r/i:1"),
        ("flink", ("--job_endpoint=h:1", "--environment_type=EXTERNAL",
                   "--environment_config=localhost:50000"), "unused"),
        ("flink", ("--job_endpoint=h:1", "--environment_type=EXTERNAL",
                   '--environment_config={"url": "h:1"}'), "unused"),
        ("flink", ("--job_endpoint=h:1", "--environment_type=PROCESS",
                   '--environment_config={"command": "/boot"}'), "unused"),
        ("flink", ("--flink_master=h:1", "--setup_file=./setup.py"), None),
        ("flink", ("--flink_master=h:1", "--extra_package=a.tar.gz"), None),
        ("spark", ("--spark_submit_uber_jar", "--spark_rest_url=http://h:6066"), "unused"),
        ("spark", ("--job_endpoint", "[::1]:8099", "--bundle_size=9"), "unused"),
        ("dataflow", GOOGLE, None),
    ],
)  # fmt: skip
def test_a_pipeline_gets_the_runner_and_an_image(
    runner: str, args: tuple[str, ...], image: str | None
) -> None:
    """Without an image or packages, TFX builds a distribution of itself for every component."""
    settings = BeamSettings(runner=runner, args=args, unchecked_args=("--mine=1",))
    given = beam_args(settings)
    wanted = [*args, "--mine=1", f"--runner={settings.found.beam_name}"]
    assert given[: len(wanted)] == wanted
    added = given[len(wanted) :]
    images = [each for each in added if each.startswith("--sdk_container_image=")]
    assert images == ([f"--sdk_container_image={image}"] if image else [])


def test_the_image_of_one_option_is_that_of_both() -> None:
    args = ("--flink_master=h:1", "--sdk_container_image=r/i:1")
    added = beam_args(BeamSettings(runner="flink", args=args))[len(args) :]
    assert "--environment_config=r/i:1" in added
    assert not any(each.startswith("--sdk_container_image=") for each in added)


def test_a_jar_must_exist_where_it_is_used(tmp_path: pathlib.Path) -> None:
    """A compiled pipeline names files of its image."""
    jar = tmp_path / "server.jar"
    settings = BeamSettings(runner="flink", args=(f"--flink_job_server_jar={jar}",))
    with pytest.raises(SettingError) as caught:
        settings.check_files()
    assert (caught.value.setting, caught.value.value) == ("beam.args", "--flink_job_server_jar")
    jar.touch()
    settings.check_files()
    BeamSettings(runner="flink", args=("--flink_job_server_jar=https://h/x.jar",)).check_files()


def test_no_setting_names_the_runner_twice() -> None:
    with pytest.raises(SettingsError) as caught:
        load("quickstart", ("beam.unchecked_args=[--runner=DirectRunner]",))
    assert caught.value.setting == "beam.unchecked_args"
    assert "beam.runner" in caught.value.suggestion


@pytest.mark.parametrize(
    ("args", "own"),
    [
        ((), []),
        (("--job_endpoint=h:1", "--spark_master_url=local", "--parallelism=2"), []),
        (("--s3_secret_access_key", "x", "--faster_copy", "--job_name=a"), []),
        (("--mine=1", "--project=p", "--other", "2"), ["--mine=1", "--other", "2"]),
        (("--parallelism=x", "--mine"), ["--parallelism=x", "--mine"]),
    ],
)
def test_options_that_beam_does_not_know_are_told_apart(
    args: tuple[str, ...], own: list[str]
) -> None:
    known, others = arguments.split(args)
    assert others == own and sorted(known + others) == sorted(args)


class Samza(Runner):
    """What a package outside of this one has."""

    name = "samza"
    description = "on a cluster of Apache Samza"
    beam_name = "somewhere.SamzaRunner"
    options = {"samza_containers": int}

    def check(self, given: Given) -> None:
        if "samza_containers" not in given:
            raise SettingError("beam.runner", self.name, "needs containers")


SAMZA = Samza()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entry point of another package."""
    point = importlib.metadata.EntryPoint("samza", f"{__name__}:SAMZA", RUNNERS.group)
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: SAMZA)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (point,))
    RUNNERS.refresh()
    yield
    monkeypatch.undo()
    RUNNERS.refresh()


def test_another_package_adds_a_runner(added: None) -> None:
    args = ("--samza_containers=3",)
    assert "--runner=somewhere.SamzaRunner" in beam_args(BeamSettings(runner="samza", args=args))
    assert refused("samza").setting == "beam.runner"
    assert refused("samza", "--samza_containers=x").value == "--samza_containers"
    assert arguments.split(args) == ([*args], [])


def test_an_unknown_runner_names_the_nearest() -> None:
    error = refused("fink")
    assert (error.setting, error.value, error.suggestion) == ("beam.runner", "fink", "flink")


def test_beam_is_imported_only_for_arguments() -> None:
    code = (
        "import sys; from stagecraft.pipeline.settings import load; load('quickstart'); "
        "assert 'apache_beam' not in sys.modules; "
        "load('quickstart', ['beam.args=[--direct_num_workers=2]']); "
        "assert 'apache_beam' in sys.modules; assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
def test_options_of_flink_are_those_of_its_job_server() -> None:
    """Asks Beam's job server, as Beam does before it sends a job."""
    jar = jars() / JAR
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = ["java", "-Xmx300m", "-jar", str(jar), "--job-host=localhost", f"--job-port={port}"]
    with subprocess.Popen(
        [*command, "--artifact-port=0", "--expansion-port=0"], stderr=subprocess.DEVNULL
    ) as server:
        try:
            channel = grpc.insecure_channel(f"localhost:{port}")
            grpc.channel_ready_future(channel).result(timeout=120)
            job_service = beam_job_api_pb2_grpc.JobServiceStub(channel)
            request = beam_job_api_pb2.DescribePipelineOptionsRequest()
            answer = job_service.DescribePipelineOptions(request, timeout=60)
        finally:
            server.kill()
    kinds = beam_job_api_pb2.PipelineOptionType
    types = {kinds.INTEGER: int, kinds.BOOLEAN: bool, kinds.NUMBER: float}
    theirs = {
        option.name: types.get(option.type, str)
        for option in answer.options
        if option.group.rpartition(".")[2].endswith("FlinkPipelineOptions")
    }
    flink = RUNNERS.get("flink").options
    assert theirs.pop("flink_master") is str  # Beam's Python has it
    assert theirs.items() <= flink.items()
