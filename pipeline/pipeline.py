"""The pipeline: ExampleGen to TrainingReport, one component after the other."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.transform.component import Transform
from tfx.dsl.components.base.base_node import BaseNode
from tfx.dsl.components.common.resolver import Resolver, ResolverStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto.pusher_pb2 import PushDestination
from tfx.proto.transform_pb2 import SplitsConfig
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.common.errors import UserError
from stagecraft.components import (
    AnomalyGate,
    BaseModel,
    Evaluator,
    ImportSchema,
    ImportTransformGraph,
    LastStatistics,
    LatestBlessedBaseline,
    ParityGate,
    Pusher,
    SpanWindow,
    Trainer,
    TrainingReport,
    resolvers,
)
from stagecraft.components.anomaly_gate.drift import Limits
from stagecraft.components.pusher import owner
from stagecraft.components.schema_gen import SchemaGen
from stagecraft.pipeline import data
from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.checks import preflight
from stagecraft.pipeline.local import layout, ownership
from stagecraft.pipeline.local.nodes import WINDOW
from stagecraft.pipeline.settings import PipelineSettings, changes_as_yaml
from stagecraft.trainer_module.models import build_model


class Places(NamedTuple):
    """Folders of a pipeline: paths, or addresses of an object store."""

    pipeline_root: str
    checkpoints: str
    serving: str
    """Numbered versions of the model."""

    metadata_db: str | None = None
    """ML Metadata's SQLite file; None if the runner has a store of its own."""


Replace = Callable[[BaseNode, Mapping[str, BaseNode]], BaseNode]
"""From a component, and those before it by their IDs, to the component that takes its place."""

Add = Callable[[Mapping[str, BaseNode]], Sequence[BaseNode]]
"""From all components by their IDs to further ones."""


class Hooks(NamedTuple):
    """A project's own components; see :func:`stagecraft.pipeline.create_pipeline`."""

    replace: Replace | None = None
    add: Add | None = None


NO_HOOKS = Hooks()


class HookError(UserError):
    """A hook returned something that does not fit the pipeline."""

    def __init__(self, hook: str, node: str, problem: str, use: str):
        """``hook``: ``replace`` or ``add``; ``node``: ID of the component."""
        super().__init__(
            f"{hook}: {node} {problem}; return {use}", setting=hook, value=node, suggestion=use
        )


def create_pipeline(
    settings: PipelineSettings, output: str | pathlib.Path, hooks: Hooks = NO_HOOKS
) -> Pipeline:
    """Builds the TFX pipeline for settings, with all its files in one folder.

    Args:
        output: folder for ``pipeline_root``, ``metadata.db``, ``checkpoints``, and ``serving``
            (unless ``push.directory`` names another).

    Raises:
        UserError: a named module or file does not exist; or the folder, or that of the served
            models, is another pipeline's.
    """
    output = pathlib.Path(output).resolve()
    ownership.check(settings, output)
    places = Places(
        pipeline_root=str(layout.pipeline_root(output)),
        checkpoints=str(layout.checkpoints(output)),
        serving=layout.serving(output, settings.push.directory),
        metadata_db=str(layout.metadata_db(output)),
    )
    return assemble(settings, places, hooks=hooks)


@build_model.files_shared()
def assemble(
    settings: PipelineSettings,
    places: Places,
    parameters: Mapping[str, RuntimeParameter] | None = None,
    baseline_strategy: type[ResolverStrategy] = LatestBlessedBaseline,
    hooks: Hooks = NO_HOOKS,
) -> Pipeline:
    """Builds the TFX pipeline for settings.

    Args:
        parameters: runtime parameters by flat name: ``data_source``, ``data_span``, and settings of
            the training such as ``train_epochs``.
        baseline_strategy: finds the model to compare a new one with. Only LatestBlessedBaseline
            takes the new model as its input.

    Raises:
        HookError: a hook's component does not fit.
        UserError: a named module or file does not exist.
    """
    nodes = _Nodes(hooks)
    varied = dict(parameters or {})
    task, splits = settings.task.found, settings.data.splits
    source, span = varied.pop("data_source", None), varied.pop("data_span", None)
    example_gen = nodes.add(data.example_gen(settings, source, span))
    examples = example_gen.outputs["examples"]

    statistics_gen = nodes.add(
        StatisticsGen(examples=examples, stats_options=data.stats_options(task))
    )
    is_own = settings.data.preprocessing_fn is None
    limits = Limits(settings.drift.max_distance, settings.drift.max_skew, settings.drift.features)
    schema_node = nodes.add(
        SchemaGen(
            statistics=statistics_gen.outputs["statistics"],
            exclude_splits=splits[1:],
            used=task.schema_features if is_own else None,
            lists=task.list_features if is_own else (),
        )
        if settings.schema_path is None
        else ImportSchema(schema_file=settings.schema_path, comparators=limits.comparators)
    )
    schema = schema_node.outputs["schema"]
    compared: dict[str, Any] = {"limits": limits} if limits.comparators else {}
    if settings.drift.looks_back:
        last = Resolver(
            strategy_class=LastStatistics,
            config={"choice": resolvers.STATISTICS},
            statistics=statistics_gen.outputs["statistics"],
            earlier=Channel(type=standard_artifacts.ExampleStatistics),
            anomalies=Channel(type=standard_artifacts.ExampleAnomalies),
        ).with_id("LastStatistics")
        compared["earlier_statistics"] = nodes.add(last).outputs["earlier"]
    anomaly_gate = nodes.add(
        AnomalyGate(
            examples=examples,
            statistics=statistics_gen.outputs["statistics"],
            schema=schema,
            pictures=bool(task.image_features),
            numbers=task.number_features,
            needs=settings.evaluate.slices,
            task=settings.task,
            train_split=splits[0],
            inferred=settings.schema_path is None,
            **compared,
        )
    )

    train_split, val_split, eval_split = splits
    window = examples
    if settings.data.window > 1:
        window = nodes.add(_window(settings.data.window, example_gen, anomaly_gate)).outputs[
            "examples"
        ]
    transform = nodes.add(_transform(settings, window, schema))
    transform.add_upstream_node(anomaly_gate)

    training_examples = (
        transform.outputs["transformed_examples"] if settings.transform.materialize else window
    )
    arguments = preflight.model_arguments(settings)
    parity_gate: BaseNode | None = None
    if settings.parity.enabled:
        parity_gate = nodes.add(
            ParityGate(
                examples=training_examples,
                transform_graph=transform.outputs["transform_graph"],
                schema=schema,
                settings=settings.model_copy(update={"train": settings.train.from_files}),
                steps=settings.parity.steps,
                batch_size=settings.parity.batch_size,
                timeout_seconds=settings.parity.timeout_seconds,
                model_arguments=arguments,
                split=train_split,
            )
        )
    earlier = {}
    if choice := settings.train.base_model:
        resolver = Resolver(
            strategy_class=BaseModel,
            config={"choice": choice},
            examples=training_examples,
            **resolvers.base_model_channels(choice),
        ).with_id("BaseModel")
        earlier["base_model"] = nodes.add(resolver).outputs["model"]
    trainer = nodes.add(
        Trainer(
            examples=training_examples,
            transform_graph=transform.outputs["transform_graph"],
            schema=schema,
            settings=settings,
            checkpoint_root=places.checkpoints,
            model_arguments=arguments,
            splits=(train_split, val_split),
            **earlier,
            **varied,
        )
    )
    if parity_gate:
        trainer.add_upstream_node(parity_gate)
    model = trainer.outputs["model"]

    candidate = {"candidate": model} if baseline_strategy is LatestBlessedBaseline else {}
    baseline = nodes.add(
        Resolver(
            strategy_class=baseline_strategy,
            **candidate,
            model=Channel(type=standard_artifacts.Model),
            model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("Baseline")
    )
    evaluator = nodes.add(
        Evaluator(
            examples=examples,
            model=model,
            baseline_model=baseline.outputs["model"],
            example_splits=[eval_split],
            eval_config=data.eval_config(settings.evaluate, settings.task, settings.schema_path),
            schema=schema,
        )
    )
    pusher = nodes.add(
        Pusher(
            model=model,
            model_blessing=evaluator.outputs["blessing"],
            push_destination=PushDestination(
                filesystem=PushDestination.Filesystem(base_directory=places.serving)
            ),
            custom_config={owner.PUSHED_BY: dict(ownership.owner_of(settings))},
            keep=settings.push.keep,
            warmup=settings.push.warmup,
            examples=examples,
            split=eval_split,
        )
    )

    if settings.report.enabled:
        nodes.add(
            TrainingReport(
                examples=examples,
                schema=schema,
                model=model,
                model_run=trainer.outputs["model_run"],
                evaluation=evaluator.outputs["evaluation"],
                blessing=evaluator.outputs["blessing"],
                pushed_model=pusher.outputs["pushed_model"],
                statistics=statistics_gen.outputs["statistics"],
                anomalies=anomaly_gate.outputs["anomalies"],
                transform_graph=transform.outputs["transform_graph"],
                parity=parity_gate.outputs["report"] if parity_gate else None,
                pipeline_name=settings.name,
                settings=changes_as_yaml(settings),
                metadata_db=places.metadata_db or "",
            )
        )

    return Pipeline(
        pipeline_name=settings.name,
        pipeline_root=places.pipeline_root,
        metadata_connection_config=(
            sqlite_metadata_connection_config(places.metadata_db) if places.metadata_db else None
        ),
        components=nodes.all(),
        beam_pipeline_args=beam_args(settings.beam),
        enable_cache=True,
    )


def _window(size: int, example_gen: BaseNode, gate: BaseNode) -> BaseNode:
    """Finds the examples of earlier spans that the gate passed."""
    node = Resolver(
        strategy_class=SpanWindow,
        config={"size": size},
        newest=example_gen.outputs["examples"],
        # TFX confuses two channels of one producer.
        examples=Channel(type=standard_artifacts.Examples),
        anomalies=Channel(
            type=standard_artifacts.ExampleAnomalies,
            producer_component_id=gate.id,
            output_key="anomalies",
        ),
    ).with_id(WINDOW)
    node.add_upstream_node(gate)
    return node


def _transform(settings: PipelineSettings, examples: Channel, schema: Channel) -> BaseNode:
    """Transform, or an earlier graph in its place."""
    if settings.transform.graph:
        return ImportTransformGraph(settings.transform.graph, schema)
    preprocessing_fn, config = data.preprocessing(settings)
    train_split, val_split, _ = settings.data.splits
    return Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=preprocessing_fn,
        custom_config=config,
        splits_config=SplitsConfig(
            analyze=[train_split],
            transform=[train_split, val_split] if settings.transform.materialize else [],
        ),
        materialize=settings.transform.materialize,
        disable_statistics=True,
    )


class _Nodes:
    """The components of a pipeline, after a project's hooks."""

    def __init__(self, hooks: Hooks):
        self._hooks = hooks
        self._made: dict[str, BaseNode] = {}

    def add(self, node: BaseNode) -> BaseNode:
        """The component, or what a hook puts in its place."""
        chosen = node
        if self._hooks.replace is not None:
            chosen = self._hooks.replace(node, MappingProxyType(self._made))
            use = f"the component {node.id}, or one with its outputs"
            if not isinstance(chosen, BaseNode):
                raise HookError("replace", node.id, f"became a {type(chosen).__name__}", use)
            if missing := sorted(set(node.outputs) - set(chosen.outputs)):
                problem = f"became {chosen.id}, which lacks the output {missing[0]}"
                raise HookError("replace", node.id, problem, use)
        self._keep("replace", chosen)
        return chosen

    def all(self) -> list[BaseNode]:
        """All components, with those that a hook adds."""
        if self._hooks.add is not None:
            for each in self._hooks.add(MappingProxyType(dict(self._made))):
                self._keep("add", each)
        return [*self._made.values()]

    def _keep(self, hook: str, node: BaseNode) -> None:
        if not isinstance(node, BaseNode):
            raise HookError(hook, repr(node), "is not a component", "a TFX component")
        if node.id in self._made:
            problem = "is the ID of two components"
            raise HookError(hook, node.id, problem, "a component .with_id() of another name")
        self._made[node.id] = node
