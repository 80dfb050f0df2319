"""ParityGate: checks, before training, that the topology computes the same as one device."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import artifact, component_spec

from stagecraft.components.fingerprints import training_properties
from stagecraft.components.fingerprints.training_properties import fingerprints
from stagecraft.components.interface import channels, parameters
from stagecraft.components.parity_gate import executor
from stagecraft.schemas import features
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.settings import TrainingSettings

_WORKER = "stagecraft.trainer_module.parity.worker"
"""A module that the gate's processes import by name; the gate itself does not import it."""


class ParityReport(artifact.Artifact):
    """``parity.json`` and ``parity.md``: a topology compared with one device."""

    TYPE_NAME = "stagecraft.ParityReport"  # a form that TFX's compiler for Kubeflow accepts


class ParityGateSpec(component_spec.ComponentSpec):
    """Interface of ParityGate."""

    PARAMETERS = {
        **training_properties.parameters(),
        **parameters(parity_steps=int, parity_batch_size=int, parity_timeout_seconds=float),
        **parameters(optional=True, compared_split=str),
    }
    INPUTS = training_properties.INPUTS
    OUTPUTS = channels(report=ParityReport)


class ParityGate(base_component.BaseComponent):
    """Trains a few steps on the topology and on one device, and fails if the numbers differ.

    The gate compares gradients from equal weights, a trajectory in float64 and the replicas' bits
    (:mod:`stagecraft.trainer_module.parity.criteria`) on batches of the split train. It starts the
    processes of the topology on this host. With one device, it passes without a check. Put it
    before the Trainer::

        gate = ParityGate(examples, transform_graph, schema, settings)
        trainer.add_upstream_node(gate)

    The output has the custom properties ``topologies`` (number of compared ones) and ``verdict``.
    """

    SPEC_CLASS = ParityGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        schema: types.BaseChannel,
        settings: TrainingSettings,
        *,
        steps: int = 20,
        batch_size: int = 24,
        timeout_seconds: float = 600.0,
        model_arguments: ModelArguments | None = None,
        split: str = features.TRAIN,
    ) -> None:
        """Connects the inputs.

        Args:
            examples: Examples with the split train, raw or as Transform materialised them.
            schema: the raw examples' schema, which names the classes.
            steps: of the trajectories.
            batch_size: minimum of examples per step; rounded up to a multiple for the topology.
            timeout_seconds: time limit for the topology, and for the one device.
            split: the split of the compared batches.

        Raises:
            UserError: the module of ``train.model`` or ``train.initial_weights`` is not found.
        """
        flat = settings.flat()
        super().__init__(
            ParityGateSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                report=types.Channel(type=ParityReport),
                parity_steps=steps,
                parity_batch_size=batch_size,
                parity_timeout_seconds=timeout_seconds,
                **({} if split == features.TRAIN else {"compared_split": split}),
                **fingerprints([executor.__name__, _WORKER], flat, model_arguments),
                **flat,
            )
        )
