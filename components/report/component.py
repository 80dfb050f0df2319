"""TrainingReport: the results of a run, for people, for Kubeflow's user interface, for programs."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.common import secrets
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.interface import channels, parameters
from stagecraft.components.parity_gate.component import ParityReport
from stagecraft.components.report import artifacts, executor


class TrainingReportSpec(component_spec.ComponentSpec):
    """Interface of TrainingReport."""

    PARAMETERS = parameters(pipeline_name=str, settings=str, metadata_db=str, code_fingerprint=str)
    INPUTS = channels(
        examples=standard_artifacts.Examples,
        schema=standard_artifacts.Schema,
        model=standard_artifacts.Model,
        model_run=standard_artifacts.ModelRun,
        evaluation=standard_artifacts.ModelEvaluation,
    ) | channels(
        optional=True,
        blessing=standard_artifacts.ModelBlessing,
        pushed_model=standard_artifacts.PushedModel,
        statistics=standard_artifacts.ExampleStatistics,
        anomalies=standard_artifacts.ExampleAnomalies,
        transform_graph=standard_artifacts.TransformGraph,
        parity=ParityReport,
    )
    OUTPUTS = channels(
        report=artifacts.HTML,
        summary=artifacts.Markdown,
        metrics=artifacts.Metrics,
        classification_metrics=artifacts.ClassificationMetrics,
        model_card=artifacts.Markdown,
    )


class TrainingReport(base_component.BaseComponent):
    """Writes a report about the run, a summary, metrics as Kubeflow shows them, and a model card.

    Put it at the end of the pipeline. It never runs the model: all metrics are the Evaluator's. The
    most confident errors need the metric ``MostConfidentlyWrong`` of ``stagecraft.components``. The
    component also writes the model card next to the pushed model. ::

        report = TrainingReport(
            examples=..., schema=..., model=..., model_run=..., evaluation=...,
            pushed_model=pusher.outputs["pushed_model"],
        )
    """

    SPEC_CLASS = TrainingReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        model: types.BaseChannel,
        model_run: types.BaseChannel,
        evaluation: types.BaseChannel,
        *,
        blessing: types.BaseChannel | None = None,
        pushed_model: types.BaseChannel | None = None,
        statistics: types.BaseChannel | None = None,
        anomalies: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        parity: types.BaseChannel | None = None,
        pipeline_name: str = "pipeline",
        settings: str = "",
        metadata_db: str = "",
    ) -> None:
        """Connects the inputs. Parts of the report whose inputs are missing stay empty.

        Args:
            examples: raw Examples, all splits.
            schema: of the examples; has the class names.
            pushed_model: of the Pusher; gets the model card.
            anomalies: of AnomalyGate or ExampleValidator.
            transform_graph: of Transform; needed to show augmented images.
            settings: YAML that reproduces the run; the component removes secrets from it.
            metadata_db: SQLite file of ML Metadata, for the time per component.
        """
        optional = {
            "blessing": blessing,
            "pushed_model": pushed_model,
            "statistics": statistics,
            "anomalies": anomalies,
            "transform_graph": transform_graph,
            "parity": parity,
        }
        super().__init__(
            TrainingReportSpec(
                examples=examples,
                schema=schema,
                model=model,
                model_run=model_run,
                evaluation=evaluation,
                **{role: channel for role, channel in optional.items() if channel is not None},
                **{
                    key: types.Channel(type=parameter.type)
                    for key, parameter in TrainingReportSpec.OUTPUTS.items()
                },
                pipeline_name=pipeline_name,
                settings=secrets.redact_yaml(settings),
                metadata_db=metadata_db,
                code_fingerprint=code_fingerprint(executor.__name__),
            )
        )
