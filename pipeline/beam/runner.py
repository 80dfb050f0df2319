"""Base classes of the Beam runners that ``beam.runner`` names. Imports no Beam."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stagecraft.common.errors import SettingError, nearest
from stagecraft.common.registry import Entry, Registry

RUNNERS = Registry(
    "stagecraft.pipeline.beam.runner:Runner",
    "beam.runner",
    "stagecraft.pipeline.beam.runners",
    "stagecraft.beam_runners",
)

Given = Mapping[str, Any]
"""The options that ``beam.args`` sets, by Beam's name (``flink_master``)."""

PACKAGES = (
    *("sdk_container_image", "worker_harness_container_image"),
    *("setup_file", "requirements_file", "extra_packages"),
)
"""Options that give packages to workers. Without one of them, TFX builds a source distribution of
itself for every component (``make_beam_dependency_flags`` in tfx/utils/dependency_utils.py)."""


class Runner(Entry):
    """Base of the values of ``beam.runner``: a file in ``runners/``, or an entry point."""

    beam_name: str
    """Beam's runner: its name, or the dotted path of its class."""

    option_classes: tuple[str, ...] = ()
    """Beam's classes of options that only some runners read, this one among them."""

    options: Mapping[str, type] = MappingProxyType({})
    """Further options, which Beam has only in other languages, and their types."""

    def check(self, given: Given) -> None:
        """Refuses arguments that cannot work, or are too few.

        Raises:
            SettingError: the argument and what works.
        """

    def check_files(self, given: Given) -> None:
        """Refuses arguments that name files which this machine does not have.

        Raises:
            SettingError: the argument.
        """

    def image(self, given: Given) -> str:
        """Container image of the workers; empty: they need none."""
        return ""

    def arguments(self, given: Given) -> list[str]:
        """Pipeline arguments, besides those that are given."""
        added = [f"--runner={self.beam_name}"]
        if not any(given.get(name) for name in PACKAGES):
            added.append(f"--sdk_container_image={self.image(given) or 'unused'}")
        return added


DOCKER, PROCESS, EXTERNAL, LOOPBACK = "DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK"

_NEEDS = {
    DOCKER: ("docker_container_image", "IMAGE"),
    PROCESS: ("process_command", '{"command": "PATH"}'),
    EXTERNAL: ("external_service_address", "HOST:PORT"),
}
"""Environment -> its option in ``--environment_option``, the form of ``--environment_config``."""

_IDLE_MILLIS = 30_000
"""Time that a worker waits for the next stage of its job. Without it, the job server ends all
workers after each stage, and each stage imports TensorFlow again."""

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[^\s:/@]+):\d{1,5}")

PORTABLE_OPTIONS: Mapping[str, type] = MappingProxyType(
    {
        "sdk_worker_parallelism": int,
        "environment_cache_millis": int,
        "environment_expiration_millis": int,
        "load_balance_bundles": bool,
        "enable_heap_dumps": bool,
        "retain_docker_containers": bool,
        "semi_persist_dir": str,
        "files_to_stage": str,
        "stable_unique_names": str,
        "user_agent": str,
        "worker_timeout": float,
    }
)
"""``worker_timeout`` of Stagecraft, and options that every job server in Java has:
``PortablePipelineOptions``, ``ManualDockerEnvironmentOptions``, ``RemoteEnvironmentOptions``,
``FileStagingOptions`` and ``PipelineOptions`` of Beam's Java SDK (sdks/java/core), in Python's
spelling."""


class JobRunner(Runner):
    """Base of the runners that run jobs of a job server: what they need, where workers run."""

    option_classes: tuple[str, ...] = ("PortableOptions", "JobServerOptions")

    master: str
    """The option with the address of the cluster."""

    jar: str
    """The option with the job server's jar."""

    further_servers: tuple[str, ...] = ()
    """Further options that name a server which accepts jobs."""

    local_master: str
    """Regular expression of addresses for which Beam runs workers in this process by default."""

    example: str
    """An argument that names a cluster."""

    def check(self, given: Given) -> None:
        """See the base class."""
        if not {"job_endpoint", self.master, self.jar, *self.further_servers} & given.keys():
            use = (
                f"--job_endpoint=HOST:PORT of its job server, {self.example}, or --{self.jar}=PATH "
                "in beam.args"
            )
            raise SettingError("beam.runner", self.name, "needs a job server", use)
        for name in ("job_endpoint", "artifact_endpoint"):
            if name in given and given[name] != "embed":  # Beam's job server for its own tests
                _check_address(f"--{name}", given[name])
        self._check_environment(given)

    def check_files(self, given: Given) -> None:
        """Refuses a jar that is neither an address nor a file."""
        path = given.get(self.jar, "")
        if path and "://" not in path and not os.path.isfile(path):
            raise SettingError("beam.args", f"--{self.jar}", "does not exist", "an absolute path")

    def environment(self, given: Given) -> str:
        """The place of the workers: that of the arguments, or as Beam chooses."""
        if chosen := given.get("environment_type"):
            return str(chosen)
        master = given.get(self.master, "")
        return LOOPBACK if not master or re.fullmatch(self.local_master, master) else DOCKER

    def image(self, given: Given) -> str:
        """See the base class."""
        if self.environment(given) != DOCKER:
            return ""
        image = _of_environment(given, DOCKER) or given.get("sdk_container_image")
        return str(image or "")

    def arguments(self, given: Given) -> list[str]:
        """See the base class; also the image where Beam reads it, and how long workers stay."""
        added = super().arguments(given)
        if "environment_cache_millis" not in given:
            added.append(f"--environment_cache_millis={_IDLE_MILLIS}")
        if (image := self.image(given)) and not _of_environment(given, DOCKER):
            added.append(f"--environment_config={image}")
        return added

    def _check_environment(self, given: Given) -> None:
        kind = self.environment(given)
        if kind.startswith("beam:env:"):
            return
        option = f"--environment_type={kind}"
        if kind not in (*_NEEDS, LOOPBACK):
            kinds = (*_NEEDS, LOOPBACK)
            use = nearest(kind.upper(), kinds, " | ".join(kinds))
            raise SettingError(
                "beam.args", "--environment_type", "has a wrong value", f"--environment_type={use}"
            )
        if kind == LOOPBACK or (kind == DOCKER and any(given.get(name) for name in PACKAGES)):
            return
        value, use = _of_environment(given, kind), f"--environment_config={_NEEDS[kind][1]}"
        if not value:
            local = f", or --environment_type={LOOPBACK} for workers on this machine"
            raise SettingError("beam.args", option, "needs the workers' configuration", use + local)
        if kind == EXTERNAL:
            _check_address("--environment_config", value)


def _of_environment(given: Given, kind: str) -> str:
    """Image, command or address of workers; empty if the arguments have none."""
    config, (name, _) = given.get("environment_config"), _NEEDS[kind]
    if not config:
        pairs = (each.partition("=") for each in given.get("environment_options", ()))
        return next((value for option, _, value in pairs if option == name), "")
    key = {PROCESS: "command", EXTERNAL: "url"}.get(kind)
    if key is None or (kind == EXTERNAL and not config.lstrip().startswith("{")):
        return str(config)
    try:
        return str(json.loads(config).get(key) or "")
    except (ValueError, AttributeError):
        return ""


def _check_address(option: str, value: str) -> None:
    if not _ADDRESS.fullmatch(value):
        raise SettingError("beam.args", option, "is no address", f"{option}=HOST:PORT")
