"""ParityGate: proves, before training, that the topology computes what one device computes."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import artifact, component_spec

from stagecraft.components.fingerprints import training_properties
from stagecraft.components.fingerprints.training_fingerprints import fingerprints
from stagecraft.components.parity_gate import executor
from stagecraft.trainer_module.settings import TrainingSettings

_WORKER = "stagecraft.trainer_module.parity.worker"
"""Started by name, in processes of its own, so that its code is not among the imports."""


class ParityReport(artifact.Artifact):
    """``parity.json`` and ``parity.md``: a topology, held against one device."""

    TYPE_NAME = "stagecraft.ParityReport"  # of the form that TFX's compiler for Kubeflow takes


class ParityGateSpec(component_spec.ComponentSpec):
    """Interface of ParityGate."""

    PARAMETERS = {
        **training_properties.parameters(),
        "parity_steps": component_spec.ExecutionParameter(type=int),
        "parity_batch_size": component_spec.ExecutionParameter(type=int),
        "parity_timeout_seconds": component_spec.ExecutionParameter(type=float),
    }
    INPUTS = training_properties.INPUTS
    OUTPUTS = {"report": component_spec.ChannelParameter(type=ParityReport)}


class ParityGate(base_component.BaseComponent):
    """Trains a few steps on the topology and on one device; fails where the numbers differ.

    Gradients from equal weights, a trajectory in float64 and the replicas' bits are compared
    (:mod:`stagecraft.trainer_module.parity.criteria`), on batches of the split train. The
    processes that a topology needs are started on this host. With one device there is nothing to
    prove, and it passes at once. Put it before the Trainer::

        gate = ParityGate(examples, transform_graph, schema, settings)
        trainer.add_upstream_node(gate)

    The output's custom properties are ``topologies``, how many were compared, and ``verdict``.
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
        num_classes: int | None = None,
    ) -> None:
        """Wires the gate.

        Args:
            examples: Examples with the split train, raw or as Transform materialised them.
            transform_graph: Transform's graph.
            schema: the raw examples' schema, which names the classes.
            settings: those of the Trainer.
            steps: of the trajectories.
            batch_size: least examples per step; rounded up to what the topology divides.
            timeout_seconds: how long the topology, or the one device, may take.
            num_classes: as the Trainer's.

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
                **fingerprints([executor.__name__, _WORKER], flat, num_classes),
                **flat,
            )
        )
