"""The parts of the pipeline that the data and the task choose."""

from __future__ import annotations

import inspect
import os
import pkgutil
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import example_gen_pb2

from stagecraft.components import Cifar10ExampleGen
from stagecraft.components.example_gen import named
from stagecraft.components.example_gen.sample import SampleExampleGen
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.pipeline.settings import DataSettings, PipelineSettings
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN
from stagecraft.trainer_module.data.tasks.task import Task

IMAGE_FOLDER = "stagecraft.components.example_gen.kinds.image_folder.ImageFolderExampleGen"

_BUCKETS = 1000
"""Buckets by hash that the splits share."""


def example_gen_of(
    settings: PipelineSettings, source: RuntimeParameter | None = None
) -> BaseComponent:
    """The component that makes the examples of the settings ``data:``.

    Args:
        source: a runtime parameter in place of ``data.source``.
    """
    return example_gen(settings, settings.data.source if source is None else source)


def example_gen(settings: PipelineSettings, source: Any, span: Any = None) -> BaseComponent:
    """The component that makes the examples.

    Args:
        source: ``data.source``, or a runtime parameter in its place.
        span: a runtime parameter in place of ``data.span``.
    """
    data, task = settings.data, settings.task
    span = data.span if span is None else span
    generator = data.generator(task.found)
    if generator in ("task", "folder"):
        path = IMAGE_FOLDER if generator == "folder" else task.found.example_gen
        kind = pkgutil.resolve_name(path)
        values = {
            **data.model_dump(exclude={"window"}),  # of spans; TextExampleGen has other windows
            "source": source,
            "dataset": data.dataset_name,
            "span": span,
        }
        known = inspect.signature(kind).parameters
        own: BaseComponent = kind(
            **{name: value for name, value in values.items() if name in known},
            **task.found.example_gen_args,
        )
        return own.with_id(ANY_EXAMPLE_GEN)
    if generator == "sample":
        sample = SampleExampleGen(task.name, task.args, output_config(data))
        return sample.with_id(ANY_EXAMPLE_GEN)
    if generator == "named":
        assert data.example_gen is not None, "it is named"
        if isinstance(source, str):
            source = None if source == "sample" else os.path.expanduser(source)
        component = named.make(
            data.example_gen, data.example_gen_args, source, output_config(data), span
        )
        return component.with_id(ANY_EXAMPLE_GEN)
    return Cifar10ExampleGen(
        source=source,
        dataset=data.dataset_name,
        val_fraction=data.val_fraction,
        shards=data.shards,
        sample_train=data.sample_train,
        sample_test=data.sample_test,
        cache_dir=data.cache_dir,
        span=span,
    )


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
