"""The parts of the pipeline that the settings ``data:``, ``task:`` and ``evaluate:`` choose."""

from __future__ import annotations

import inspect
import os
import pkgutil
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import example_gen_pb2

from stagecraft.common.errors import SettingError
from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.components.example_gen import named
from stagecraft.components.example_gen.sample import SampleExampleGen
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.pipeline.settings import DataSettings, EvaluateSettings, PipelineSettings
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN, SAMPLE_SOURCE
from stagecraft.schemas.features import MissingFeatureError
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TaskSettings

_KINDS = {
    "cifar": "stagecraft.components.Cifar10ExampleGen",
    "folder": "stagecraft.components.example_gen.kinds.image_folder.ImageFolderExampleGen",
}
"""ExampleGens of pictures, which no task names."""

_BUCKETS = 1000
"""Buckets by hash that the splits share."""


def example_gen(
    settings: PipelineSettings,
    source: RuntimeParameter | None = None,
    span: RuntimeParameter | None = None,
) -> BaseComponent:
    """The component that makes the examples of the settings ``data:``.

    Args:
        source: a runtime parameter in place of ``data.source``.
        span: a runtime parameter in place of ``data.span``.
    """
    data, task = settings.data, settings.task
    generator = data.generator(task.found)
    values: dict[str, Any] = {
        **data.model_dump(exclude={"window"}),  # of spans; TextExampleGen has other windows
        "source": data.source if source is None else source,
        "dataset": data.dataset_name,
        "span": data.span if span is None else span,
    }
    if generator == "sample":
        component: BaseComponent = SampleExampleGen(task.name, task.args, output_config(data))
    elif generator == "named":
        assert data.example_gen is not None, "it is named"
        base = values["source"]
        if isinstance(base, str):
            base = None if base == SAMPLE_SOURCE else os.path.expanduser(base)
        component = named.make(
            data.example_gen, data.example_gen_args, base, output_config(data), values["span"]
        )
    else:
        kind = pkgutil.resolve_name(_KINDS.get(generator, task.found.example_gen))
        known = inspect.signature(kind).parameters
        component = kind(
            **{name: value for name, value in values.items() if name in known},
            **({} if generator == "cifar" else task.found.example_gen_args),
        )
    return component if generator == "cifar" else component.with_id(ANY_EXAMPLE_GEN)


def output_config(data: DataSettings) -> example_gen_pb2.Output:
    """Three splits by hash, in the shares of the settings."""
    val, evaluation = (
        max(1, round(_BUCKETS * share)) for share in (data.val_fraction, data.eval_fraction)
    )
    buckets = zip(data.splits, (_BUCKETS - val - evaluation, val, evaluation), strict=True)
    split = example_gen_pb2.SplitConfig.Split
    return example_gen_pb2.Output(
        split_config=example_gen_pb2.SplitConfig(
            splits=[split(name=name, hash_buckets=share) for name, share in buckets]
        )
    )


def preprocessing(settings: PipelineSettings) -> tuple[str, dict[str, Any]]:
    """Dotted path of the function for Transform, and Transform's ``custom_config``."""
    data, task = settings.data, settings.task.found
    path = (data.preprocessing_fn or task.preprocessing_fn).replace(":", ".")
    # TFX's cache key has only the dotted path; it needs the code, too.
    schema = settings.schema_path
    config = dict(task.preprocessing_config(schema)) if schema else {}
    if settings.task.name == type(settings.task)().name:
        return path, {**config, "code_fingerprint": code_fingerprint(path, files=task.files)}
    module, colon, _ = settings.task.name.partition(":")
    code = [path, *task.code, *([module] if colon else [])]
    return path, {
        **config,
        "code_fingerprint": code_fingerprint(*code, files=task.files),
        "task": {"name": settings.task.name, "args": settings.task.args},
    }


def stats_options(task: Task) -> tfdv.StatsOptions | None:
    """Options for features that are not what their type says.

    TFDV does not count the values of images. It counts each value of numbers that are names.
    """
    told = [
        schema_pb2.Feature(name=name, type=schema_pb2.BYTES, image_domain=schema_pb2.ImageDomain())
        for name in task.image_features
    ]
    told += [
        schema_pb2.Feature(
            name=name, type=schema_pb2.INT, int_domain=schema_pb2.IntDomain(is_categorical=True)
        )
        for name in task.categories
    ]
    return tfdv.StatsOptions(schema=schema_pb2.Schema(feature=told)) if told else None


def eval_config(
    settings: EvaluateSettings, task: TaskSettings | None = None, schema_path: str | None = None
) -> config_pb2.EvalConfig:
    """See :func:`stagecraft.components.evaluator.eval_config.make_eval_config`.

    Raises:
        SettingError: a slice is no feature of the schema. TFMA would leave it out without a word.
    """
    if schema_path and settings.slices:
        try:
            schema_reader.check_features(schema_path, settings.slices)
        except MissingFeatureError as error:
            raise SettingError(
                "evaluate.slices",
                ", ".join(error.missing),
                f"is not in {schema_path}",
                f"features such as {', '.join(error.present)}",
            ) from None
    return make_eval_config(task=task, **settings.model_dump(exclude_none=True))
