"""A whole run: steps in the order of the graph, in parallel where possible."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import json
import pathlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.document import Document, dependencies
from stagecraft.pipeline.kubeflow.emulator import driver, records, store
from stagecraft.pipeline.kubeflow.emulator.containers import Containers
from stagecraft.pipeline.kubeflow.emulator.launcher import Failed, Pod, Stopped
from stagecraft.pipeline.kubeflow.emulator.records import Outputs, Records
from stagecraft.pipeline.kubeflow.emulator.values import stored_metadata
from stagecraft.pipeline.kubeflow.spec import Json


class Ended(NamedTuple):
    """How a step ended."""

    state: str
    """``done``, ``cached``, ``failed`` or ``interrupted``."""

    seconds: float
    attempts: int
    outputs: Outputs | None
    cause: str
    log: pathlib.Path


class Run:
    """One run of a compiled pipeline."""

    def __init__(
        self,
        document: Document,
        folder: pathlib.Path,
        arguments: Json,
        image: Containers | None = None,
    ):
        """Prepares the run; a later run in the same folder uses the cache.

        Args:
            document: the compiled pipeline.
            folder: for the emulated object store, logs and the cache.
            arguments: values of the pipeline's parameters.
            image: runs each step in a container; None: in a process with this Python.
        """
        self.run_id = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        self.folder = folder / "runs" / self.run_id
        self.folder.mkdir(parents=True)
        self.steps = document.steps()
        self.stop = threading.Event()
        for step in self.steps.values():
            _check(step)
            if image is not None and step.container is not None:
                step.container["image"] = image.image  # a part of the cache's key
        self._document, self._arguments, self._image = document, arguments, image
        self._store = folder / "store"
        self._records = Records(folder / "records.json")
        self._done = driver.Producers()
        self._ended_tasks: set[str] = set()
        self.ended: dict[str, Ended] = {}

    def run(self, *, parallel: int, on_event: Callable[[str, str, Ended | None], None]) -> None:
        """Runs all steps, but none after a failure; calls ``on_event`` at each start and end."""
        running: dict[concurrent.futures.Future[Ended], str] = {}
        waiting = dict(self.steps)
        writable = self._image.writable() if self._image else contextlib.nullcontext()
        with writable, concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            try:
                while waiting or running:
                    ready = [] if self.stop.is_set() else self._ready(waiting)
                    for step in ready[: parallel - len(running)]:
                        del waiting[step.name]
                        on_event(step.name, "running", None)
                        running[pool.submit(self._step, step)] = step.name
                    if not running:
                        break
                    # The timeout lets Ctrl-C interrupt.
                    finished, _ = concurrent.futures.wait(
                        running, 0.5, concurrent.futures.FIRST_COMPLETED
                    )
                    for future in finished:
                        name = running.pop(future)
                        result = self.ended[name] = future.result()
                        on_event(name, result.state, result)
                        if result.outputs is not None:
                            self._ended_tasks.add(name)
                            self._done[_recorded(self.steps[name])] = result.outputs
                        else:
                            waiting.clear()  # Argo starts nothing new after a failure
            except BaseException:
                self.stop.set()
                for future, name in running.items():  # the stop event ends them
                    self.ended[name] = future.result()
                    on_event(name, self.ended[name].state, self.ended[name])
                raise

    def _ready(self, waiting: dict[str, specs.Step]) -> list[specs.Step]:
        return [step for step in waiting.values() if dependencies(step.task) <= self._ended_tasks]

    def _step(self, step: specs.Step) -> Ended:
        started = time.monotonic()
        log = self.folder / f"{step.name}.log"
        entry = self._document.executors.get(step.component["executorLabel"], {})
        attempts = 1 + step.task.get("retryPolicy", {}).get("maxRetryCount", 0)
        cause, state, attempt = "", "failed", 0
        try:
            inputs = driver.resolve_inputs(step, self._arguments, self._done, self._constants(step))
            run = f"{self._document.root}/{self._document.name}/{self.run_id}"
            address = driver.outputs_address(run, step.name)
            for attempt in range(1, attempts + 1):
                try:
                    outputs, cached = self._attempt(step, inputs, address, entry, attempt, log)
                except Failed as error:
                    cause = str(error)
                    continue
                except (OSError, ValueError, KeyError) as error:
                    cause = f"the launcher failed: {error!r}"
                    continue
                state = "cached" if cached else "done"
                seconds = time.monotonic() - started
                return Ended(state, seconds, attempt, outputs, "", log)
        except UserError as error:
            cause = str(error)
        except Stopped:
            state = "interrupted"
        return Ended(state, time.monotonic() - started, attempt, None, cause, log)

    def _attempt(
        self,
        step: specs.Step,
        inputs: Json,
        address: str,
        entry: Json,
        attempt: int,
        log: pathlib.Path,
    ) -> tuple[Outputs, bool]:
        """The step's outputs, and whether they come from the cache."""
        folder = self.folder / "pods" / f"{step.name}-{attempt}"
        with log.open("ab", buffering=0) as file:
            if "importer" in step.executor:
                return _import(step, inputs, self._records), False
            pod = Pod(folder, self._store, file, self._image)
            try:
                executor_input = {
                    "inputs": inputs,
                    "outputs": driver.provision_outputs(step, address, pod.root, pod.tmp),
                }
                claims = [mount.get("constant", "") for mount in entry.get("pvcMount", ())]
                key = records.fingerprint(self._document.name, step, executor_input, claims)
                cacheable = step.task.get("cachingOptions", {}).get("enableCache", False)
                outputs = self._records.cached(key) if cacheable else None
                if outputs is not None:
                    return outputs, True
                pod.check_buckets(step, entry, executor_input, self._document.root)
                outputs = pod.run(step, entry, executor_input, self._records, self.stop)
                if cacheable:
                    self._records.remember(key, outputs)
                return outputs, False
            finally:
                pod.remove()

    def _constants(self, step: specs.Step) -> dict[str, str]:
        return {
            "{{$.pipeline_job_name}}": self._document.name,
            "{{$.pipeline_job_resource_name}}": f"{self._document.name}-{self.run_id}",
            "{{$.pipeline_job_uuid}}": self.run_id,
            "{{$.pipeline_task_name}}": step.name,
        }


def _recorded(step: specs.Step) -> str:
    """The name under which a step is recorded: importer_launcher.go uses the one in taskInfo."""
    return step.task["taskInfo"]["name"] if "importer" in step.executor else step.name


def _import(step: specs.Step, inputs: Json, known: Records) -> Outputs:
    """Registers an artifact at an address, backend/src/v2/component/importer_launcher.go."""
    importer = step.executor["importer"]
    source = importer["artifactUri"]
    uri = inputs["parameterValues"].get(source.get("runtimeParameter", ""), source.get("constant"))
    if not store.knows(str(uri)):
        raise Failed(f"the importer fails: {uri} is in no object store that the backend knows")
    [name] = step.component["outputDefinitions"]["artifacts"]
    artifact = {
        "uri": str(uri),
        "type": importer["typeSchema"],
        "metadata": stored_metadata(importer.get("metadata", {})),
    }
    key = f"imported {json.dumps(artifact, sort_keys=True)}"
    outputs = None if importer.get("reimport") else known.cached(key)
    if outputs is None:
        outputs = Outputs(parameters={}, artifacts={name: {"name": known.number(), **artifact}})
        known.remember(key, outputs)
    return Outputs(parameters={}, artifacts={name: next(iter(outputs["artifacts"].values()))})


def _check(step: specs.Step) -> None:
    if step.task.get("triggerPolicy", {}).get("condition"):
        raise UserError(
            f"{step.name}: the emulator supports no conditions, and the step has one.",
            record=step.name,
        )
    if step.container is None and "importer" not in step.executor:
        raise UserError(
            f"{step.name}: the backend cannot run a {', '.join(step.executor)}, only containers "
            "and importers; see 'stagecraft lint'.",
            record=step.name,
        )
