"""AnomalyGate: stops the pipeline if the data does not conform to its schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.components.anomaly_gate import EARLIER, executor
from stagecraft.components.anomaly_gate.drift import Limits
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.interface import channels, parameters
from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings import TaskSettings


class AnomalyGateSpec(component_spec.ComponentSpec):
    """Interface of AnomalyGate."""

    PARAMETERS = parameters(code_fingerprint=str) | parameters(
        optional=True,
        pictures=int,
        needs=str,
        numbers=str,
        task=str,
        train_split=str,
        inferred=int,
        limits=str,
    )
    INPUTS = channels(
        examples=standard_artifacts.Examples,
        statistics=standard_artifacts.ExampleStatistics,
        schema=standard_artifacts.Schema,
    ) | channels(optional=True, **{EARLIER: standard_artifacts.ExampleStatistics})
    OUTPUTS = channels(anomalies=standard_artifacts.ExampleAnomalies)


class AnomalyGate(base_component.BaseComponent):
    """Validates every split against the schema, and fails with a list of all findings.

    Like ExampleValidator, it runs TFDV's validation of the statistics. It also checks every example
    for errors that statistics cannot show: the size of an image, labels out of range, and ids that
    occur twice, within a split or across splits. NaN counts as a missing value. Texts in place of
    numbers, a missing label, and labels that are no classes of the task are findings, too; a label
    that the train split lacks is none, but its examples are counted. ExampleValidator
    only reports anomalies. This component raises, so that components that depend on its output
    ``anomalies`` do not run::

        gate = AnomalyGate(examples, statistics, schema)
        transform.add_upstream_node(gate)

    The output has ExampleValidator's layout, ``Split-NAME/SchemaDiff.pb``, and the custom property
    ``anomalies``, which is 0. If there is an earlier run, the custom property ``columns`` names new
    columns and columns without values. If there are labels that the train split lacks, it has the
    custom property ``unseen_labels``, a text.
    """

    SPEC_CLASS = AnomalyGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        pictures: bool = True,
        numbers: Sequence[str] = (),
        needs: Sequence[str] = (),
        task: TaskSettings | None = None,
        train_split: str = features.TRAIN,
        inferred: bool = False,
        limits: Limits | None = None,
        earlier_statistics: types.BaseChannel | None = None,
    ) -> None:
        """Connects the inputs.

        Args:
          schema: Schema. An annotation ``image_shape=HxWxC`` of its feature ``image`` sets the size
            of an image; the default is 32x32x3.
          pictures: whether the features ``image``, ``label`` and ``id`` are those of pictures. If
            not, only TFDV checks the data, whose features may have any names.
          numbers: features that the model gets as numbers: their values must be finite, and differ
            by more than some roundings of float32.
          needs: features that a later component reads by name, such as those of slices: the schema
            must have them.
          task: the gate also lists all settings of this task that do not fit the data.
          train_split: the split to train on.
          inferred: whether SchemaGen inferred the schema, so that there is no file to edit.
          limits: how far the data may be from those of an earlier run, and the splits apart.
          earlier_statistics: ExampleStatistics of the earlier run; a channel without an artifact:
            there is none. See :class:`~stagecraft.components.LastStatistics`.
        """
        chosen = task.model_dump(mode="json", exclude_none=True) if task else None
        code = registries.code({"task_name": task.name}) if task else []
        super().__init__(
            spec=AnomalyGateSpec(
                examples=examples,
                statistics=statistics,
                schema=schema,
                code_fingerprint=code_fingerprint(executor.__name__, *code),
                anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
                **({} if pictures else {"pictures": 0}),
                **({"numbers": json.dumps(sorted(numbers))} if numbers else {}),
                **({"needs": json.dumps(sorted(needs))} if needs else {}),
                **({"task": json.dumps(chosen)} if chosen else {}),
                **({} if train_split == features.TRAIN else {"train_split": train_split}),
                **({"inferred": 1} if inferred else {}),
                **({"limits": json.dumps(limits._asdict())} if limits else {}),
                **({} if earlier_statistics is None else {EARLIER: earlier_statistics}),
            )
        )
