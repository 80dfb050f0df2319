"""A whole run: steps in the order of the graph, beside each other where it allows that."""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import pathlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.document import Document, dependencies
from stagecraft.pipeline.kubeflow.emulator import driver, records
from stagecraft.pipeline.kubeflow.emulator.launcher import Failed, Pod, Stopped
from stagecraft.pipeline.kubeflow.emulator.records import Outputs, Records
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.schemas.errors import UserError


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

    def __init__(self, document: Document, folder: pathlib.Path, arguments: Json):
        """Prepares it.

        Args:
            document: the compiled pipeline.
            folder: holds the store, what the backend remembers, and logs; a later run in it is
                served from the cache.
            arguments: values of the pipeline's parameters.

        Raises:
            UserError: a step that cannot be emulated.
        """
        self.run_id = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        self.folder = folder / "runs" / self.run_id
        self.folder.mkdir(parents=True)
        self.steps = document.steps()
        self.stop = threading.Event()
        for step in self.steps.values():
            _check(step)
        self._document, self._arguments = document, arguments
        self._store = folder / "store"
        self._records = Records(folder / "records.json")
        self._done: dict[str, Outputs] = {}
        self.ended: dict[str, Ended] = {}
        """The steps that have ended, by name."""

    def run(self, *, parallel: int, on_event: Callable[[str, str, Ended | None], None]) -> None:
        """Runs all steps, or those before the first that fails and those that run beside it.

        Args:
            parallel: steps at a time.
            on_event: is told of a step's name, its state, and, at its end, how it ended.
        """
        running: dict[concurrent.futures.Future[Ended], str] = {}
        waiting = dict(self.steps)
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            try:
                while waiting or running:
                    ready = [] if self.stop.is_set() else self._ready(waiting)
                    for step in ready[: parallel - len(running)]:
                        del waiting[step.name]
                        on_event(step.name, "running", None)
                        running[pool.submit(self._step, step)] = step.name
                    if not running:
                        break
                    # With a timeout, so that Ctrl-C arrives.
                    finished, _ = concurrent.futures.wait(
                        running, 0.5, concurrent.futures.FIRST_COMPLETED
                    )
                    for future in finished:
                        name = running.pop(future)
                        how = self.ended[name] = future.result()
                        on_event(name, how.state, how)
                        if how.outputs is not None:
                            self._done[name] = how.outputs
                        else:
                            waiting.clear()  # Argo starts nothing new after a failure
            except BaseException:
                self.stop.set()
                for future, name in running.items():  # they end now
                    self.ended[name] = future.result()
                    on_event(name, self.ended[name].state, self.ended[name])
                raise

    def _ready(self, waiting: dict[str, specs.Step]) -> list[specs.Step]:
        return [step for step in waiting.values() if dependencies(step.task) <= self._done.keys()]

    def _step(self, step: specs.Step) -> Ended:
        started = time.monotonic()
        log = self.folder / f"{step.name}.log"
        entry = self._document.executors.get(step.component["executorLabel"], {})
        attempts = 1 + step.task.get("retryPolicy", {}).get("maxRetryCount", 0)
        cause, state, attempt = "", "failed", 0
        try:
            inputs = driver.resolve_inputs(step, self._arguments, self._done, self._constants(step))
            run = f"{self._document.root}/{self._document.name}/{self.run_id}"
            place = driver.place_of_outputs(run, step.name)
            for attempt in range(1, attempts + 1):
                try:
                    found, cached = self._attempt(step, inputs, place, entry, attempt, log)
                except Failed as error:
                    cause = str(error)
                    continue
                except (OSError, ValueError, KeyError) as error:
                    cause = f"the launcher failed: {error!r}"
                    continue
                state = "cached" if cached else "done"
                seconds = time.monotonic() - started
                return Ended(state, seconds, attempt, found, "", log)
        except UserError as error:
            cause = str(error)
        except Stopped:
            state = "interrupted"
        return Ended(state, time.monotonic() - started, attempt, None, cause, log)

    def _attempt(
        self,
        step: specs.Step,
        inputs: Json,
        place: str,
        entry: Json,
        attempt: int,
        log: pathlib.Path,
    ) -> tuple[Outputs, bool]:
        """The step's outputs, and whether they are from the cache."""
        folder = self.folder / "pods" / f"{step.name}-{attempt}"
        with log.open("ab", buffering=0) as file:
            if "importer" in step.executor:
                return _import(step, inputs, self._records), False
            pod = Pod(folder, self._store, file)
            try:
                executor_input = {
                    "inputs": inputs,
                    "outputs": driver.provision_outputs(step, place, pod.root, pod.tmp),
                }
                claims = [mount.get("constant", "") for mount in entry.get("pvcMount", ())]
                key = records.fingerprint(self._document.name, step, executor_input, claims)
                cacheable = step.task.get("cachingOptions", {}).get("enableCache", False)
                found = self._records.cached(key) if cacheable else None
                if found is not None:
                    return found, True
                deadline = float(entry.get("activeDeadlineSeconds", 0)) or None
                found = pod.run(step, executor_input, self._records, self.stop, deadline)
                if cacheable:
                    self._records.remember(key, found)
                return found, False
            finally:
                pod.remove()

    def _constants(self, step: specs.Step) -> dict[str, str]:
        return {
            "{{$.pipeline_job_name}}": self._document.name,
            "{{$.pipeline_job_resource_name}}": f"{self._document.name}-{self.run_id}",
            "{{$.pipeline_job_uuid}}": self.run_id,
            "{{$.pipeline_task_name}}": step.name,
        }


def _import(step: specs.Step, inputs: Json, known: Records) -> Outputs:
    """Registers what lies at an address, backend/src/v2/component/importer_launcher.go."""
    importer = step.executor["importer"]
    source = importer["artifactUri"]
    given = inputs["parameterValues"].get(
        source.get("runtimeParameter", ""), source.get("constant")
    )
    [name] = step.component["outputDefinitions"]["artifacts"]
    artifact = {
        "uri": str(given),
        "type": importer["typeSchema"],
        "metadata": importer.get("metadata", {}),
    }
    key = f"imported {json.dumps(artifact, sort_keys=True)}"
    found = None if importer.get("reimport") else known.cached(key)
    if found is None:
        found = Outputs(parameters={}, artifacts={name: {"name": known.number(), **artifact}})
        known.remember(key, found)
    return Outputs(parameters={}, artifacts={name: next(iter(found["artifacts"].values()))})


def _check(step: specs.Step) -> None:
    if step.task.get("triggerPolicy", {}).get("condition"):
        raise UserError(f"{step.name}: conditions are not emulated; the step has one.")
    if step.container is None and "importer" not in step.executor:
        raise UserError(
            f"{step.name}: the backend runs containers and importers, not "
            f"{', '.join(step.executor)}; see 'stagecraft lint'."
        )
