"""AnomalyGate: stops the pipeline before anything is made of data that is not as it should be."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.components.anomaly_gate import executor
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint


class AnomalyGateSpec(component_spec.ComponentSpec):
    """Interface of AnomalyGate."""

    PARAMETERS = {"code_fingerprint": component_spec.ExecutionParameter(type=str)}
    INPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {
        "anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies)
    }


class AnomalyGate(base_component.BaseComponent):
    """Holds every split against the schema; fails with a message that says what is wrong.

    It runs TFDV's validation of the statistics, as ExampleValidator does, and looks at every
    example for what statistics cannot tell: how many bytes an image has, which label is out of
    range, and whether an id occurs twice, in one split or in two. ExampleValidator reports and
    goes on; this raises, so that whatever depends on its output ``anomalies`` does not run::

        gate = AnomalyGate(examples, statistics, schema)
        transform.add_upstream_node(gate)

    The output has ExampleValidator's layout, ``Split-NAME/SchemaDiff.pb``, and the custom property
    ``anomalies``, which is 0.
    """

    SPEC_CLASS = AnomalyGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self, examples: types.BaseChannel, statistics: types.BaseChannel, schema: types.BaseChannel
    ) -> None:
        """Wires the gate.

        Args:
          examples: Examples with TFRecords of tf.train.Examples.
          statistics: ExampleStatistics of all splits of these examples.
          schema: Schema. An annotation ``image_shape=HxWxC`` of its feature ``image`` gives the
            number of bytes of an image; 32x32x3 otherwise.
        """
        super().__init__(
            spec=AnomalyGateSpec(
                examples=examples,
                statistics=statistics,
                schema=schema,
                code_fingerprint=code_fingerprint(executor.__name__),
                anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
            )
        )
