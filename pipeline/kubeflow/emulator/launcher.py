"""The launcher: one attempt at a step, in a pod.

backend/src/v2/component/launcher_v2.go: ``prepareOutputFolders``, ``downloadArtifacts``,
``compileCmdAndArgs``, ``execute``, ``collectOutputParameters``, ``uploadOutputArtifacts``.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import IO

from stagecraft.components.object_store.location import STORE, STORE_NEEDS_KEYS
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.emulator import containers, emissary, store
from stagecraft.pipeline.kubeflow.emulator.containers import Containers
from stagecraft.pipeline.kubeflow.emulator.driver import EXECUTOR_LOGS, resolve_arguments
from stagecraft.pipeline.kubeflow.emulator.store import Outputs, Records
from stagecraft.pipeline.kubeflow.emulator.values import (
    ValueProblem,
    expand,
    from_text,
    stored_metadata,
    to_text,
)
from stagecraft.pipeline.kubeflow.entrypoint.addresses import ROOT
from stagecraft.pipeline.kubeflow.spec import Json

GRACE_SECONDS = 30.0
"""Between SIGTERM and SIGKILL, Kubernetes' ``terminationGracePeriodSeconds``."""


_CREDENTIALS = ("AWS_", "GOOGLE_")
"""Variables of this process that a container does not have: its own come from secrets."""


_KILLED = 128 + signal.SIGKILL
"""Exit code of a container whose step the kernel killed. Nobody else sends SIGKILL to it alone."""


class Failed(Exception):
    """The container ended with an exit code other than 0, or exceeded its time limit."""

    def __init__(self, message: str, code: int = 0):
        """``code``: the exit code of the container, if it ended by itself."""
        super().__init__(message)
        self.code = code


class Stopped(Exception):
    """The run was stopped during the step."""


class Pod:
    """The file system of one attempt, and its process or container."""

    def __init__(
        self,
        step: specs.Step,
        entry: Json,
        folder: pathlib.Path,
        objects: pathlib.Path,
        log: IO[bytes],
        image: Containers | None = None,
    ):
        """Makes the pod's folders.

        Args:
            step: to run.
            entry: of the step in the platform document.
            folder: for the pod's files.
            objects: folder in place of the object store.
            log: receives the output of the step.
            image: runs the step in a container; None: in a process with this Python.
        """
        self._root, self._tmp, self._home = folder / "root", folder / "tmp", folder / "home"
        self._folder, self._objects, self._log, self._image = folder, objects, log, image
        self._step, self._entry, self._environment = step, entry, environment(step, entry)
        for path in (self._root, self._tmp, self._home):
            path.mkdir(parents=True)
        self.root, self.tmp = self._root, self._tmp
        """``/`` and ``/tmp``, as the step sees them."""
        if image is not None:
            self.root, self.tmp = pathlib.Path("/"), pathlib.Path("/tmp")

    def run(self, executor_input: Json, records: Records, stop: threading.Event) -> Outputs:
        """Downloads inputs, runs the command, uploads outputs; may raise Failed or Stopped."""
        for artifacts in executor_input["outputs"]["artifacts"].values():
            self._copy(artifacts["artifacts"][0]["uri"]).parent.mkdir(parents=True, exist_ok=True)
        for output in executor_input["outputs"]["parameters"].values():
            self._file(output["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
        for artifacts in executor_input["inputs"]["artifacts"].values():
            for artifact in artifacts["artifacts"]:
                if store.knows(artifact["uri"]):  # otherwise the launcher only warns
                    store.transfer(
                        store.below(self._objects, artifact["uri"]), self._copy(artifact["uri"])
                    )
        variables = {"KFP_POD_NAME": f"pod-{self._step.name}", **self._environment}
        arguments = command(
            self._step, executor_input, variables, lambda uri: str(store.below(self.root, uri))
        )
        self._execute(arguments, stop)
        try:
            return self._collect(executor_input, records)
        except ValueProblem as error:
            raise Failed(f"the launcher fails: {error}") from None

    def check_buckets(self, executor_input: Json, root: str) -> None:
        """Refuses an input that the launcher cannot open (``fetchNonDefaultBuckets``).

        The launcher opens buckets other than the root's with the container's environment.

        Raises:
            Failed: the address is a bucket alone, or the environment lacks keys or an address
                without a bucket's name.
        """
        own = self._environment
        endpoint = own.get("AWS_ENDPOINT_URL_S3") or own.get("AWS_ENDPOINT_URL") or ""
        host = urllib.parse.urlsplit(endpoint).hostname or ""
        for name, artifacts in executor_input["inputs"]["artifacts"].items():
            uri = artifacts["artifacts"][0]["uri"]
            bucket, _, key = uri.partition("://")[2].partition("/")
            if store.knows(uri) and not key:
                raise Failed(f"the launcher fails: the input {name!r}, {uri}, has no key")
            if not uri.startswith("minio://") or root.split("/")[2:3] == [bucket]:
                continue
            if "AWS_ACCESS_KEY_ID" not in own:
                raise Failed(f"the launcher fails: no credentials for {uri}")
            if not re.fullmatch(r"[0-9.]+|[0-9a-f:]+", host):
                raise Failed(f"the launcher fails: no such host {bucket}.{host}, for {uri}")

    def remove(self) -> None:
        """Removes the folders."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _execute(self, arguments: list[str], stop: threading.Event) -> None:
        """Runs the command. Raises Failed or Stopped."""
        if self._image is None:
            self._wait(self._process(arguments), stop)
            return
        name = re.sub(r"[^\w.-]", "-", f"stagecraft-{self._folder.parts[-3]}-{self._folder.name}")
        mounts = containers.launcher_mounts(self._root, self._tmp, self._objects)
        variables = self._environment | {
            STORE: containers.STORE_PATH,
            STORE_NEEDS_KEYS: "1",
            "PYTHONUNBUFFERED": "1",
        }
        container = self._image.command(
            name,
            arguments,
            mounts=[*mounts, *containers.volumes(self._entry, self._objects.parent / "claims")],
            variables=variables,
            limits=containers.limits(self._step, self._entry),
        )
        try:
            self._wait(self._start(container, {**os.environ, **variables}), stop)
        except Failed as error:
            limit = containers.memory_limit(self._step)
            if error.code != _KILLED or not limit:
                raise
            raise Failed(
                f"{error}, SIGKILL: it exceeded its memory limit of {limit} bytes (OOMKilled), "
                f"which kubeflow.steps.{self._step.name}.memory sets",
                error.code,
            ) from None
        finally:
            self._image.remove([name])
            self._image.take_over([self._root, self._tmp, self._objects])

    def _process(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        """The command as a process of this Python's environment."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(_CREDENTIALS)
        }
        own = inherited | {
            STORE: str(self._objects),
            STORE_NEEDS_KEYS: "1",
            ROOT: str(self._root),
            "TMPDIR": str(self._tmp),
            "PYTHONUNBUFFERED": "1",
        }
        if arguments[0] == "python":  # the image's Python is this one
            arguments = [sys.executable, *arguments[1:]]
        return self._start(
            [sys.executable, str(pathlib.Path(emissary.__file__)), *arguments],
            own | self._environment,
        )

    def _start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            arguments,
            cwd=self._home,
            env=environment,
            stdin=subprocess.PIPE,  # its end tells the emissary that this process has ended
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait(self, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        """Waits for an emissary or a container's client. Raises Failed or Stopped."""
        assert process.stdin is not None
        timeout = float(self._entry.get("activeDeadlineSeconds", 0)) or math.inf
        deadline, late = time.monotonic() + timeout, False
        try:
            while process.poll() is None and not late and not stop.wait(0.05):
                late = time.monotonic() > deadline
            if process.poll() is None:
                _end(process)
            code = process.wait()
        finally:
            process.stdin.close()
        if stop.is_set():
            raise Stopped
        if late:
            raise Failed(f"the container took longer than {timeout:.0f} s")
        if code:
            raise Failed(f"the container ended with exit code {code}", code)

    def _collect(self, executor_input: Json, records: Records) -> Outputs:
        """``collectOutputParameters`` and ``uploadOutputArtifacts``."""
        types = self._step.outputs("parameters")
        written: Json = {}
        output_file = self._file(executor_input["outputs"]["outputFile"])
        if output_file.exists():
            written = json.loads(output_file.read_text())
        parameters = dict(written.get("parameterValues", {}))
        for name, output in executor_input["outputs"]["parameters"].items():
            path = self._file(output["outputFile"])
            if name not in parameters:
                if not path.exists():
                    raise Failed(f"the container wrote no output parameter {name!r}")
                parameters[name] = from_text(path.read_text(), types[name]["parameterType"])
        artifacts = {}
        for name, provisioned in executor_input["outputs"]["artifacts"].items():
            if name == EXECUTOR_LOGS:  # the launcher writes it
                continue
            artifact = dict(provisioned["artifacts"][0])
            [reported] = written.get("artifacts", {}).get(name, {}).get("artifacts", [{}])[:1]
            artifact["uri"] = reported.get("uri") or artifact["uri"]
            metadata = artifact["metadata"] | reported.get("metadata", {})
            artifact["metadata"] = stored_metadata(metadata)
            artifact["name"] = records.number()
            if store.knows(artifact["uri"]):
                store.transfer(
                    self._copy(artifact["uri"]), store.below(self._objects, artifact["uri"])
                )
            artifacts[name] = artifact
        return Outputs(parameters=parameters, artifacts=artifacts)

    def _copy(self, address: str) -> pathlib.Path:
        """Path of the launcher's copy of an address, for this process."""
        return store.below(self._root, address)

    def _file(self, path: str) -> pathlib.Path:
        """Path of a file below :attr:`root` or :attr:`tmp`, for this process."""
        seen = pathlib.Path(path)
        if seen.is_relative_to(self.tmp):
            return self._tmp / seen.relative_to(self.tmp)
        return self._root / seen.relative_to(self.root)


def command(
    step: specs.Step,
    executor_input: Json,
    variables: Mapping[str, str],
    local: Callable[[str], str],
) -> list[str]:
    """The container's command with its placeholders filled in.

    ``resolveContainerArgs`` of the driver, Kubernetes' expansion of variables, and
    ``compileCmdAndArgs`` of the launcher, one after the other.

    Args:
        step: to run.
        executor_input: for the container, without defaults.
        variables: of the container.
        local: path of the launcher's copy of an address.

    Raises:
        UserError: the driver fails.
    """
    container = step.container
    assert container is not None
    arguments = [
        expand(text, variables)
        for part in ("command", "args")
        for text in resolve_arguments(container.get(part, []), executor_input)
    ]
    given = json.loads(expand(json.dumps(specs.whole_numbers(executor_input)), variables))
    inputs, outputs = given["inputs"], given["outputs"]
    for name, definition in step.inputs("parameters").items():  # addDefaultParams
        if definition.get("defaultValue") is not None:
            inputs["parameterValues"].setdefault(name, definition["defaultValue"])
    replaced = {"{{$}}": json.dumps(given)}
    for side, values in (("inputs", inputs), ("outputs", outputs)):
        for name, artifacts in values["artifacts"].items():
            uri = artifacts["artifacts"][0]["uri"]
            replaced[f"{{{{$.{side}.artifacts['{name}'].uri}}}}"] = uri
            if store.knows(uri):
                replaced[f"{{{{$.{side}.artifacts['{name}'].path}}}}"] = local(uri)
    for name, value in inputs["parameterValues"].items():
        replaced[f"{{{{$.inputs.parameters['{name}']}}}}"] = to_text(value)
    for name, output in outputs["parameters"].items():
        replaced[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = output["outputFile"]
    program, *rest = arguments
    compiled = [program.replace("{{$}}", replaced["{{$}}"])]
    for argument in rest:
        for placeholder, value in replaced.items():
            argument = argument.replace(placeholder, value)
        compiled.append(argument)
    return compiled


def environment(step: specs.Step, entry: Json) -> dict[str, str]:
    """The container's variables.

    A secret's value is that of the same variable of this process, or a text in its place.
    """
    assert step.container is not None
    secrets = {
        pair["envVar"]: os.environ.get(pair["envVar"], "emulated")
        for secret in entry.get("secretAsEnv", ())
        for pair in secret.get("keyToEnv", ())
    }
    variables = {each["name"]: each["value"] for each in step.container.get("env", ())}
    return variables | secrets


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a pod as Kubernetes does: SIGTERM, and SIGKILL after the grace period."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        assert process.stdin is not None
        process.stdin.close()
