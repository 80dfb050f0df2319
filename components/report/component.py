"""TrainingReport: what a run came to, for people, for Kubeflow's user interface, for programs."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.parity_gate.component import ParityReport
from stagecraft.components.report import artifacts, executor
from stagecraft.schemas import secrets


def _input(kind: type[types.Artifact]) -> component_spec.ChannelParameter:
    return component_spec.ChannelParameter(type=kind, optional=True)


class TrainingReportSpec(component_spec.ComponentSpec):
    """Interface of TrainingReport."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("pipeline_name", "settings", "metadata_db", "code_fingerprint")
    }
    INPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": _input(standard_artifacts.ModelBlessing),
        "pushed_model": _input(standard_artifacts.PushedModel),
        "statistics": _input(standard_artifacts.ExampleStatistics),
        "anomalies": _input(standard_artifacts.ExampleAnomalies),
        "transform_graph": _input(standard_artifacts.TransformGraph),
        "parity": _input(ParityReport),
    }
    OUTPUTS = {
        "report": component_spec.ChannelParameter(type=artifacts.HTML),
        "summary": component_spec.ChannelParameter(type=artifacts.Markdown),
        "metrics": component_spec.ChannelParameter(type=artifacts.Metrics),
        "classification_metrics": component_spec.ChannelParameter(
            type=artifacts.ClassificationMetrics
        ),
        "model_card": component_spec.ChannelParameter(type=artifacts.ModelCard),
    }


class TrainingReport(base_component.BaseComponent):
    """Writes a page about the run, a summary, metrics as Kubeflow shows them, and a model card.

    Put it at the end. It asks the model nothing: what it says of the test pictures, the Evaluator
    found; the surest mistakes, if that was told to keep them
    (``stagecraft.components.evaluator.misclassified``). The model card is also written beside the
    pushed model. ::

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
        """Wires the report; what is not given is not in it.

        Args:
            examples: raw Examples, all splits.
            schema: theirs, which names the classes.
            model: of the Trainer.
            model_run: of the Trainer.
            evaluation: of the Evaluator.
            blessing: of the Evaluator.
            pushed_model: of the Pusher; gets the model card.
            statistics: of StatisticsGen.
            anomalies: of AnomalyGate or ExampleValidator.
            transform_graph: of Transform; shows what augmentation did.
            parity: of ParityGate.
            pipeline_name: the page's title.
            settings: YAML that makes the same run again; secrets are left out of it.
            metadata_db: SQLite file of ML Metadata, for the time per component.
        """
        given = {
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
                **{role: channel for role, channel in given.items() if channel is not None},
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
