"""The compiled pipeline as a dictionary, and its steps; see ``pipeline_spec.proto``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, KeysView
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    FASTEST = yaml.SafeLoader
else:
    FASTEST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # where PyYAML has no libyaml
"""libyaml's loader, which takes a tenth of the time of PyYAML's."""

Json = dict[str, Any]

DEEPEST = 200
"""Levels of nesting; a compiled pipeline has about 15. libyaml's parser crashes at thousands."""

ENTRYPOINT = ("python", "-m", "stagecraft.pipeline.kubeflow.entrypoint")

RUN, RESOLVE, LATEST_BLESSED = "run", "resolve", "latest-blessed"
"""Operations of the entrypoint: run an executor, run a driver, look up the last blessed model."""

SPAN_WINDOW = "span-window"
"""Operation of the entrypoint: look up the examples of earlier spans."""

HEAD = "# PIPELINE DEFINITION"
"""First line of a compiled file, as the KFP SDK writes it."""

DRIVER_OUTPUT = "driver_output"
"""Parameter: a ``DriverOutput`` as JSON."""

RESOLVED_INPUTS = "--resolved_inputs"
"""Argument: types of the input artifacts that come as parameters, by name, as JSON."""

CHOICE = "--choice"
"""Argument: ``train.initial_weights`` of a :class:`stagecraft.components.BaseModel`."""

BEAM_ARGS = "STAGECRAFT_BEAM_ARGS"
"""Environment variable: Beam arguments as JSON. The backend's cache key has the arguments of a
container, and not its environment."""

LOOKUP = "lookup"

ESCAPED = "stagecraft-escaped:"
"""Start of a parameter that is JSON, because Argo would replace a tag in the text itself."""


TASK_CONFIG = "TASK_CONFIG"
"""Type of a parameter that the driver sets."""

EXIT = "ALL_UPSTREAM_TASKS_COMPLETED"
"""Trigger strategy of an exit handler: it runs after others, whether they succeed or fail."""

PIPELINE_DAG = "tfx-dag"
"""The DAG in which TFX puts all nodes of a pipeline with an exit handler."""


def load_all(text: str, loader: type[yaml.SafeLoader] = FASTEST) -> list[Any]:
    """The documents of a text.

    Raises:
        yaml.YAMLError: also for deep nesting, and for numbers of thousands of digits.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested in more than {DEEPEST} levels")
    try:
        return list(yaml.load_all(text, Loader=loader))
    except (AttributeError, LookupError, ValueError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None


class Step(NamedTuple):
    """A task with its component and executor; changing their content changes the spec."""

    name: str
    task: Json
    component: Json
    executor: Json
    """The executor in the deployment spec: ``{"container": …}`` or another kind; {} of a DAG."""

    path: tuple[str, ...] = ()
    """Tasks of the DAGs that have the step, the outermost first; empty: it is in the root."""

    @property
    def is_dag(self) -> bool:
        """Whether it is a DAG with steps of its own."""
        return "dag" in self.component

    @property
    def is_exit(self) -> bool:
        """Whether it is an exit handler."""
        return is_exit(self.task)

    @property
    def condition(self) -> str:
        """CEL expression; empty: the step always runs."""
        return condition(self.task)

    @property
    def container(self) -> Json | None:
        """The container; None for importers and other executors."""
        return self.executor.get("container")

    @property
    def is_ours(self) -> bool:
        """Whether the step runs this project's entrypoint, not a user's container."""
        command = (self.container or {}).get("command", ())
        return tuple(command)[: len(ENTRYPOINT)] == ENTRYPOINT

    def sources(self, kind: str) -> Json:
        """Sources of its ``parameters`` or ``artifacts``, by name."""
        return sources(self.task, kind)

    def inputs(self, kind: str) -> Json:
        """Definitions of its input ``parameters`` or ``artifacts``, by name."""
        return inputs(self.component, kind)

    def outputs(self, kind: str) -> Json:
        """Definitions of its output ``parameters`` or ``artifacts``, by name."""
        return outputs(self.component, kind)

    def add_parameter(self, name: str, kind: str, source: Json) -> None:
        """Adds or replaces an input parameter of a type."""
        definitions = self.component.setdefault("inputDefinitions", {})
        definitions.setdefault("parameters", {})[name] = {"parameterType": kind}
        self.task.setdefault("inputs", {}).setdefault("parameters", {})[name] = source

    def depend(self, on: str) -> None:
        """Makes the step wait for another."""
        self.task["dependentTasks"] = sorted({*self.task.get("dependentTasks", ()), on})


def root(spec: Json) -> str:
    """Address below which steps write outputs."""
    return str(spec.get("defaultPipelineRoot") or "minio://mlpipeline/v2/artifacts")


def sources(task: Json, kind: str) -> Json:
    """Sources of a task's ``parameters`` or ``artifacts``, by name."""
    found: Json = task.get("inputs", {}).get(kind, {})
    return found


def inputs(component: Json, kind: str) -> Json:
    """Definitions of a component's input ``parameters`` or ``artifacts``, by name."""
    found: Json = component.get("inputDefinitions", {}).get(kind, {})
    return found


def outputs(component: Json, kind: str) -> Json:
    """Definitions of a component's output ``parameters`` or ``artifacts``, by name."""
    found: Json = component.get("outputDefinitions", {}).get(kind, {})
    return found


def steps(spec: Json, dag: Json | None = None, path: tuple[str, ...] = ()) -> Iterator[Step]:
    """Yields the steps of a DAG, by default the root, and of its inner DAGs, in their order."""
    for step in of_dag(spec, dag or spec["root"], path):
        if step.is_dag:
            yield from steps(spec, step.component, (*path, step.name))
        else:
            yield step


def of_dag(spec: Json, dag: Json, path: tuple[str, ...]) -> Iterator[Step]:
    """The tasks of a DAG, also those that are DAGs.

    Args:
        dag: the component.
        path: of its tasks.
    """
    for name, task in dag["dag"]["tasks"].items():
        component = spec["components"][task["componentRef"]["name"]]
        executor = {}
        if "dag" not in component:
            executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
        yield Step(name, task, component, executor, path)


def dags(spec: Json) -> list[Json]:
    """The tasks of each DAG: those of the root, then those of components; mutable."""
    components = [spec["root"], *spec.get("components", {}).values()]
    return [each["dag"]["tasks"] for each in components if "dag" in each]


def pipeline_dag(spec: Json) -> Json:
    """The component with the nodes of a TFX pipeline: the root, or the DAG of its exit handler."""
    found: Json = spec.get("components", {}).get(PIPELINE_DAG) or spec["root"]
    return found


def add(
    spec: Json,
    name: str,
    *,
    image: str,
    operation: list[str],
    output_types: dict[str, str],
    task: Json,
    component: Json,
) -> None:
    """Adds a step that runs an operation of this project's entrypoint.

    Args:
        operation: the name of the operation, then its own arguments.
        output_types: type or schema of each output artifact, by name.
    """
    label = f"{name}_executor"
    pipeline_dag(spec)["dag"]["tasks"][name] = {
        "taskInfo": {"name": name},
        "componentRef": {"name": name},
        **task,
    }
    spec["components"][name] = {"executorLabel": label, **component}
    spec["deploymentSpec"]["executors"][label] = {
        "container": {
            "image": image,
            "command": list(ENTRYPOINT),
            "args": [
                *operation,
                "--output_types",
                json.dumps(output_types, sort_keys=True),
                "--json_serialized_invocation_args",
                "{{$}}",
            ],
        }
    }


def from_task(producer: str, key: str) -> Json:
    """An input parameter that is another step's output parameter."""
    return {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}


def complete_arguments(spec: Json, root: str) -> None:
    """Adds arguments that the backend omits, or that differ between runs; all share ``root``."""
    folder = f"{root.rstrip('/')}/{spec['pipelineInfo']['name']}"
    for step in steps(spec):
        if step.is_ours:
            args = step.executor["container"]["args"]
            definitions = step.component.get("inputDefinitions", {})
            _set(args, "--task", step.name)
            _set(args, "--pipeline_folder", folder)
            _set(args, "--outputs", json.dumps(sorted(step.outputs("artifacts"))))
            _set(
                args, "--json_serialized_inputs_spec_args", json.dumps(definitions, sort_keys=True)
            )


def _set(args: list[str], option: str, value: str) -> None:
    if option in args:
        args[args.index(option) + 1] = value
    else:
        args += [option, value]


def rename_for_argo(spec: Json) -> None:
    """Gives steps names that Argo accepts: letters, digits and ``-``.

    Argo: ``workflowFieldNameFmt`` in workflow/validate/validate.go. ``taskInfo.name`` becomes the
    same name: importers, and drivers up to 2.5, record a step under it, and later steps look the
    step up by its task's name (importer_launcher.go, ``resolveUpstreamArtifacts`` in resolve.go).
    """
    names = [name for tasks in dags(spec) for name in tasks]
    plain = {name: re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") for name in names}
    for name, other in plain.items():
        if name != other and (other in names or list(plain.values()).count(other) > 1):
            raise ValueError(f"the steps {name!r} and {other!r} have the same name on Kubeflow")
    for tasks in dags(spec):
        for name, task in tasks.items():
            task["dependentTasks"] = [plain[each] for each in task.get("dependentTasks", ())]
            if not task["dependentTasks"]:
                del task["dependentTasks"]
            for kind in ("parameters", "artifacts"):
                for source in sources(task, kind).values():
                    for output in (*_OUTPUTS, "taskFinalStatus"):
                        if output in source:
                            source[output]["producerTask"] = plain[source[output]["producerTask"]]
            task["taskInfo"] = {**task.get("taskInfo", {}), "name": plain[name]}
        renamed = {plain[name]: task for name, task in tasks.items()}
        tasks.clear()
        tasks.update(renamed)


def pass_parameters(spec: Json) -> None:
    """Passes the pipeline's parameters on to the DAG before an exit handler; TFX does not."""
    dag = spec["components"].get(PIPELINE_DAG)
    if dag is None:
        return
    known = inputs(spec["root"], "parameters")
    used = {
        source["componentInputParameter"]
        for task in dag["dag"]["tasks"].values()
        for source in sources(task, "parameters").values()
        if "componentInputParameter" in source
    }
    if used:
        dag["inputDefinitions"] = {
            "parameters": {
                name: {"parameterType": known[name]["parameterType"]} for name in sorted(used)
            }
        }
        spec["root"]["dag"]["tasks"][PIPELINE_DAG]["inputs"] = {
            "parameters": {name: {"componentInputParameter": name} for name in sorted(used)}
        }


_OUTPUTS = ("taskOutputParameter", "taskOutputArtifact")


def is_exit(task: Json) -> bool:
    """Whether a task is an exit handler."""
    return bool(task.get("triggerPolicy", {}).get("strategy") == EXIT)


def condition(task: Json) -> str:
    """CEL expression; empty: the task always runs."""
    return str(task.get("triggerPolicy", {}).get("condition", ""))


def producers(task: Json) -> KeysView[str]:
    """Tasks whose outputs a task reads."""
    return {
        source[output].get("producerTask", ""): None
        for kind in ("parameters", "artifacts")
        for source in sources(task, kind).values()
        for output in _OUTPUTS
        if source.get(output)
    }.keys()


def dependencies(task: Json) -> KeysView[str]:
    """Tasks that a task waits for: ``addImplicitDependencies`` in argocompiler/dag.go."""
    return dict.fromkeys([*task.get("dependentTasks", ()), *producers(task)]).keys()


def drop_implied_dependencies(spec: Json) -> None:
    """Removes dependencies that inputs imply; the user interface would draw a second edge.

    The backend adds these dependencies: ``addImplicitDependencies`` in argocompiler/dag.go.
    """
    for task in (task for tasks in dags(spec) for task in tasks.values()):
        listed = [name for name in task.pop("dependentTasks", ()) if name not in producers(task)]
        if listed:
            task["dependentTasks"] = listed


def type_of(value: Any) -> str:
    """The parameter type of a JSON value; numbers are doubles. Of any other value: ``null``."""
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, (int, float)):
        return "NUMBER_DOUBLE"
    names = {"str": "STRING", "list": "LIST", "dict": "STRUCT"}
    return names.get(type(value).__name__, "null")


def fits(found: str, wanted: str) -> bool:
    """Whether the backend takes a value of a type for a parameter of another type."""
    if wanted == "STRING" or found == wanted:
        return True  # the backend turns any value into text
    numbers = ("NUMBER_DOUBLE", "NUMBER_INTEGER")
    structs = ("STRUCT", "TASK_FINAL_STATUS", TASK_CONFIG)
    return any(found in kinds and wanted in kinds for kinds in (numbers, structs))


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """JSON with each leaf changed."""
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    return change(value)


def whole_numbers(value: Any) -> Any:
    """JSON with ``10`` for ``10.0``: a protobuf Struct has only doubles."""
    return map_leaves(
        value, lambda leaf: int(leaf) if isinstance(leaf, float) and leaf.is_integer() else leaf
    )


def doubles(value: Any) -> Any:
    """JSON as in a protobuf Struct: each number is a double."""
    return map_leaves(value, lambda leaf: float(leaf) if type(leaf) is int else leaf)
