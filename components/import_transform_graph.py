"""ImportTransformGraph: an earlier Transform graph for new data, in place of Transform.

The weights of a model belong to the graph of its training: with vocabularies, ranges and borders of
new data, they would answer for other values. ImportTransformGraph has Transform's output
``transform_graph``, with the ID ``Transform``; the Trainer transforms raw examples as it reads
them. TFX caches it by the content of the graph.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, channel_utils, component_spec, standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components.fingerprints.code_fingerprint import folder_digest
from stagecraft.components.import_schema import FILE_NAME
from stagecraft.components.interface import Artifacts, channels, parameters
from stagecraft.trainer_module.models.initial_weights import source

SETTING = "transform.graph"

_ID = "Transform"


class TransformGraphError(UserError):
    """``transform.graph`` is not usable, or does not fit the data."""

    def __init__(self, path: str, problem: str, use: str, record: str = ""):
        super().__init__(
            f"{SETTING}: {path}: {problem}; use {use}",
            setting=SETTING,
            value=path,
            suggestion=use,
            file=path,
            record=record,
        )


def find(path: str) -> pathlib.Path:
    """The folder of a graph: itself, or that of a pushed model or of a checkpoint.

    Raises:
        TransformGraphError: there is none.
    """
    given = pathlib.Path(path).expanduser()
    found = given if (given / "transform_fn").is_dir() else source.transform_graph(given)
    if found is None or not (found / "transform_fn" / "saved_model.pb").is_file():
        raise TransformGraphError(
            path,
            "has no Transform graph",
            "the folder of a pushed model, of a checkpoint, or of Transform's transform_graph",
        )
    return found.resolve()


def _digest(folder: pathlib.Path) -> str:
    return folder_digest(str(folder))[:16]


class Executor(base_executor.BaseExecutor):
    """Copies the graph, in the layout of TFX's Transform."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the class.

        Raises:
            TransformGraphError: the graph has changed since the pipeline was made, or the data lack
                a feature that it reads.
        """
        import tensorflow as tf
        import tensorflow_transform as tft
        from tensorflow_transform.tf_metadata import schema_utils

        from stagecraft.trainer_module.data import schema_reader
        from stagecraft.trainer_module.models.initial_weights import transform_graph_match

        path = exec_properties["graph"]
        folder = find(path)
        if _digest(folder) != exec_properties["digest"]:
            problem = "has changed since the pipeline was made"
            raise TransformGraphError(path, problem, "the folder as it was, or run again")
        graph = tft.TFTransformOutput(str(folder))
        schema_folder = artifact_utils.get_single_uri(input_dict["schema"])
        schema: schema_pb2.Schema = schema_reader.read(os.path.join(schema_folder, FILE_NAME))
        given = schema_utils.schema_as_feature_spec(schema).feature_spec
        for name, spec in graph.raw_feature_spec().items():
            if name not in given:
                problem = f"reads the feature {name!r}, which the data lack"
            elif given[name].dtype != spec.dtype:
                types_ = f"as {spec.dtype.name}, but the data have {given[name].dtype.name}"
                problem = f"reads the feature {name!r} {types_}"
            elif isinstance(spec, tf.io.FixedLenFeature) and not isinstance(
                given[name], tf.io.FixedLenFeature
            ):
                problem = f"needs the feature {name!r} in each example, but some data lack it"
            else:
                continue
            raise TransformGraphError(path, problem, "the graph of such data", name)
        target = artifact_utils.get_single_uri(output_dict["transform_graph"])
        transform_graph_match.copy(str(folder), target)


class ImportTransformGraphSpec(component_spec.ComponentSpec):
    """Interface of ImportTransformGraph."""

    PARAMETERS = parameters(graph=str, digest=str)
    INPUTS = channels(schema=standard_artifacts.Schema)
    OUTPUTS = channels(transform_graph=standard_artifacts.TransformGraph)


class ImportTransformGraph(base_component.BaseComponent):
    """Imports a Transform graph from a folder; output ``transform_graph``."""

    SPEC_CLASS = ImportTransformGraphSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, graph: str, schema: types.BaseChannel) -> None:
        """Finds the graph.

        Args:
          graph: folder of a pushed model, of a checkpoint, or of an artifact ``transform_graph``.
          schema: of the data, which need the features that the graph reads.

        Raises:
          TransformGraphError: the folder has no Transform graph.
        """
        folder = find(graph)
        super().__init__(
            spec=ImportTransformGraphSpec(
                graph=str(folder),
                digest=_digest(folder),
                schema=schema,
                transform_graph=channel_utils.as_channel([standard_artifacts.TransformGraph()]),
            )
        )
        self.with_id(_ID)
