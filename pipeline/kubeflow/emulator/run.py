"""A whole run: steps in the order of the graph, in parallel where possible."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import json
import pathlib
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.emulator import cel, driver, store
from stagecraft.pipeline.kubeflow.emulator.containers import Containers
from stagecraft.pipeline.kubeflow.emulator.launcher import Failed, Pod, Stopped
from stagecraft.pipeline.kubeflow.emulator.store import Outputs, Records
from stagecraft.pipeline.kubeflow.emulator.values import stored_metadata
from stagecraft.pipeline.kubeflow.spec import Json


class Ended(NamedTuple):
    """How a step ended."""

    state: str
    """``done``, ``cached``, ``skipped``, ``failed`` or ``interrupted``."""

    seconds: float
    attempts: int
    outputs: Outputs | None
    cause: str
    log: pathlib.Path


OnEvent = Callable[[str, str, Ended | None], object]


class _Dag:
    """A DAG that runs: its inputs, and what its tasks gave."""

    def __init__(
        self, tasks: list[specs.Step], inputs: Json, step: specs.Step | None, outer: _Dag | None
    ):
        """Begins.

        Args:
            tasks: of the DAG.
            inputs: ``ExecutorInput.inputs`` of the DAG.
            step: the DAG as a task; None: it is the root.
            outer: the DAG that has the task.
        """
        self.inputs, self.step, self.outer = inputs, step, outer
        self.top: _Dag = self if outer is None or (step and step.is_exit) else outer.top
        """The root, or the exit handler that the DAG belongs to: a failure stops no other one."""
        self.halted = False
        """Of :attr:`top`: whether no step starts any more but exit handlers."""
        self.waiting = {task.name: task for task in tasks}
        self.states: dict[str, str] = {}  # of tasks that ended
        self.done = driver.Producers()

    @property
    def state(self) -> str:
        """How the DAG ended: ``done`` or ``failed``."""
        return "failed" if _FAILED & {*self.states.values()} else "done"

    def outputs(self) -> Outputs:
        """Outputs of the DAG, of tasks that ran: ``GetProducerTask`` in resolve.go."""
        found = Outputs(parameters={}, artifacts={})
        assert self.step is not None
        definitions = self.step.component["dag"].get("outputs", {})
        for name, definition in definitions.get("parameters", {}).items():
            sources = definition.get("valueFromOneof", {}).get("parameterSelectors", ())
            for source in (definition.get("valueFromParameter"), *sources):
                if source and source["producerSubtask"] in self.done:
                    values = self.done[source["producerSubtask"]]["parameters"]
                    found["parameters"][name] = values[source["outputParameterKey"]]
        for name, definition in definitions.get("artifacts", {}).items():
            for source in definition.get("artifactSelectors", ()):
                if source["producerSubtask"] in self.done:
                    values = self.done[source["producerSubtask"]]["artifacts"]
                    found["artifacts"][name] = values[source["outputArtifactKey"]]
        return found


_LAST_STATES = {"failed": "FAILED", "cached": "CACHED"}
"""States of ML Metadata, by which the backend tells an exit handler how its task ended."""

_RAN = {"done", "cached"}
_FAILED = {"failed", "interrupted"}
Running = dict[concurrent.futures.Future[Ended], tuple[str, specs.Step, _Dag]]


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
        self._document = document
        tasks = list(document.walk())
        importers = {(*each.path, each.name) for each in tasks if "importer" in each.executor}
        for task in tasks:
            _check(task, importers)
        for step in self.steps.values():
            if image is not None and step.container is not None:
                step.container["image"] = image.image  # a part of the cache's key
        self._image = image
        self._names = {(*step.path, step.name): name for name, step in self.steps.items()}
        self._store = folder / "store"
        self._records = Records(folder / "records.json")
        root = document.tasks(document.spec["root"], ())
        inputs = {"parameterValues": arguments, "artifacts": {}}
        self._open = [_Dag(root, inputs, None, None)]
        self._on_event: OnEvent = lambda *event: None
        self.ended: dict[str, Ended] = {}

    @property
    def failed(self) -> bool:
        """Whether a step failed, or was stopped."""
        return any(each.state in _FAILED for each in self.ended.values())

    def run(self, *, parallel: int, on_event: OnEvent) -> None:
        """Runs all steps; calls ``on_event`` at each start and end.

        After a failure, only exit handlers start.
        """
        running: Running = {}
        self._on_event = on_event
        writable = self._image.writable() if self._image else contextlib.nullcontext()
        with writable, concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            try:
                while True:
                    for step, dag in self._ready(running)[: parallel - len(running)]:
                        del dag.waiting[step.name]
                        name = self._name(step)
                        on_event(name, "running", None)
                        running[pool.submit(self._step, step, dag)] = name, step, dag
                    if not running:
                        break
                    # The timeout lets Ctrl-C interrupt.
                    finished, _ = concurrent.futures.wait(
                        running, 0.5, concurrent.futures.FIRST_COMPLETED
                    )
                    for future in finished:
                        _, step, dag = running.pop(future)
                        self._end(step, dag, future.result())
            except BaseException:
                self.stop.set()
                for future, (_, step, dag) in running.items():  # the stop event ends them
                    self._end(step, dag, future.result())
                raise

    def _name(self, step: specs.Step) -> str:
        """The name that people see; of a DAG, that of its task."""
        return self._names.get((*step.path, step.name), step.name)

    def _end(self, step: specs.Step, dag: _Dag, ended: Ended) -> None:
        """Records the end of a step."""
        dag.states[step.name] = ended.state
        if ended.state in _FAILED and step.is_exit:
            # It changes the state of no DAG: assessDAGPhase in Argo's dag.go.
            dag.states[step.name] = "done"
        elif ended.state in _FAILED:
            dag.top.halted = True
        if ended.outputs is not None:
            dag.done[_recorded(step)] = ended.outputs
        if not (step.is_dag and ended.state in _RAN):
            self.ended[self._name(step)] = ended
            self._on_event(self._name(step), ended.state, ended)

    def _ready(self, running: Running) -> list[tuple[specs.Step, _Dag]]:
        """The containers and importers that can start; first starts and ends DAGs, and skips."""
        busy = [dag for _, _, dag in running.values()]
        ready: list[tuple[specs.Step, _Dag]] = []
        changed = not self.stop.is_set()
        while changed:
            changed, ready = False, []
            for dag in self._open[::-1]:  # the inner ones first
                for step in list(dag.waiting.values()):
                    whether = self._whether(step, dag)
                    if whether is None:
                        continue
                    if not whether:
                        self._omit(step, dag)
                        changed = True
                    elif step.is_dag:
                        self._begin(step, dag)
                        changed = True
                    else:
                        ready.append((step, dag))
                inner = [each for each in self._open if each.outer is dag]
                if dag.step and not (dag.waiting or inner or dag in busy):
                    assert dag.outer is not None
                    self._open.remove(dag)
                    dag.outer.states[dag.step.name] = "done" if dag.step.is_exit else dag.state
                    if dag.state == "done":
                        dag.outer.done[dag.step.name] = dag.outputs()
                    changed = True
        return ready

    def _whether(self, step: specs.Step, dag: _Dag) -> bool | None:
        """Whether a step runs, as far as other steps decide; None: they have not ended.

        ``depends`` in argocompiler/dag.go, and Argo's exit hooks, which run after a step that ran.
        """
        states = {dag.states.get(name) for name in specs.dependencies(step.task)}
        if step.is_exit:
            return None if None in states else states <= _RAN | {"failed"}
        if dag.top.halted:
            return False
        if states <= _RAN:
            return True
        return None if None in states else False

    def _omit(self, step: specs.Step, dag: _Dag) -> None:
        """Leaves out a step of which Argo makes a node ``Omitted``."""
        if dag.top.halted:
            del dag.waiting[step.name]
            dag.states[step.name] = "skipped"
            return
        names = [name for name in specs.dependencies(step.task) if dag.states[name] == "skipped"]
        self._skip(step, dag, f"{' and '.join(sorted(names))} did not run")

    def _skip(self, step: specs.Step, dag: _Dag, cause: str) -> None:
        """Skips a step, or all steps of a DAG."""
        dag.waiting.pop(step.name, None)
        dag.states[step.name] = "skipped"
        path = (*step.path, step.name)
        for other in self.steps.values():
            if (*other.path, other.name)[: len(path)] == path:
                name = self._name(other)
                self.ended[name] = Ended("skipped", 0.0, 0, None, cause, self._log(other))
                self._on_event(name, "skipped", self.ended[name])

    def _begin(self, step: specs.Step, dag: _Dag) -> None:
        """Starts a DAG, or skips it for its condition: driver/dag.go."""
        del dag.waiting[step.name]
        try:
            inputs = self._inputs(step, dag)
            if step.condition and not cel.condition(step.condition, inputs):
                self._skip(step, dag, f"its condition is false: {step.condition}")
                return
            tasks = self._document.tasks(step.component, (*step.path, step.name))
            self._open.append(_Dag(tasks, inputs, step, dag))
        except (UserError, cel.CelError) as error:
            self._skip(step, dag, f"the driver of {step.name} failed")
            self._end(step, dag, Ended("failed", 0.0, 1, None, str(error), self._log(step)))

    def _inputs(self, step: specs.Step, dag: _Dag) -> Json:
        return driver.resolve_inputs(
            step, dag.inputs, dag.done, self._constants(step), self._final_status(step, dag)
        )

    def _final_status(self, step: specs.Step, dag: _Dag) -> Json:
        """``PipelineTaskFinalStatus`` of the first task that an exit handler follows."""
        [name, *_] = step.task.get("dependentTasks") or [""]
        state = dag.states.get(name, "")
        return {
            "state": _LAST_STATES.get(state, "COMPLETE"),
            "pipelineTaskName": name,
            "pipelineJobResourceName": f"{self._document.name}-{self.run_id}",
            "error": {},
        }

    def _log(self, step: specs.Step) -> pathlib.Path:
        return self.folder / f"{self._name(step).replace('/', '.')}.log"

    def _step(self, step: specs.Step, dag: _Dag) -> Ended:
        started = time.monotonic()
        log = self._log(step)
        entry = self._document.executors.get(step.component["executorLabel"], {})
        attempts = 1 + step.task.get("retryPolicy", {}).get("maxRetryCount", 0)
        cause, state, attempt = "", "failed", 0
        try:
            inputs = self._inputs(step, dag)
            if step.condition and not cel.condition(step.condition, inputs):
                cause = f"its condition is false: {step.condition}"
                return Ended("skipped", time.monotonic() - started, 0, None, cause, log)
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
        except (UserError, cel.CelError) as error:
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
        folder = self.folder / "pods" / f"{self._log(step).stem}-{attempt}"
        with log.open("ab", buffering=0) as file:
            if "importer" in step.executor:
                return _import(step, inputs, self._records), False
            pod = Pod(step, entry, folder, self._store, file, self._image)
            try:
                executor_input = {
                    "inputs": inputs,
                    "outputs": driver.provision_outputs(step, address, pod.root, pod.tmp),
                }
                claims = [mount.get("constant", "") for mount in entry.get("pvcMount", ())]
                key = store.fingerprint(self._document.name, step, executor_input, claims)
                cacheable = step.task.get("cachingOptions", {}).get("enableCache", False)
                outputs = self._records.cached(key) if cacheable else None
                if outputs is not None:
                    return outputs, True
                pod.check_buckets(executor_input, self._document.root)
                outputs = pod.run(executor_input, self._records, self.stop)
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
    [name] = step.outputs("artifacts")
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


def _check(step: specs.Step, importers: Collection[tuple[str, ...]]) -> None:
    if any(name in step.task for name in ("parameterIterator", "artifactIterator")):
        raise UserError(
            f"{step.name}: the emulator has no loops, and the step has one.", record=step.name
        )
    if step.container is None and "importer" not in step.executor and not step.is_dag:
        raise UserError(
            f"{step.name}: the backend cannot run a {', '.join(step.executor)}, only containers "
            "and importers; see 'stagecraft lint'.",
            record=step.name,
        )
    if "importer" in step.executor and step.condition:
        raise UserError(
            f"{step.name}: the backend refuses an importer with a condition. Move the condition to "
            "the steps that use the import.",
            record=step.name,
        )
    for name in specs.dependencies(step.task):
        if step.is_exit and (*step.path, name) in importers:
            raise UserError(
                f"{step.name}: an exit handler never runs after an importer ({name}), which has no "
                "hook. Let it follow another step.",
                record=step.name,
            )
