"""A transform graph that passes features on, for pipelines without Transform."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from stagecraft.schemas.errors import UserError


def write(folder: str | os.PathLike[str], schema_path: str) -> str:
    """Writes the graph of the features of a TFDV schema; starts TensorFlow.

    A feature with a shape stays a dense tensor, and another one is sparse.

    Returns:
        The folder.

    Raises:
        UserError: the schema cannot be read.
    """
    import tensorflow as tf
    from tensorflow_transform import TFTransformOutput, impl_helper
    from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

    from stagecraft.trainer_module.data import labels

    schema = labels.read(schema_path)
    specs = schema_utils.schema_as_feature_spec(schema).feature_spec
    if not specs:
        raise UserError(f"{schema_path}: has no features", file=schema_path)

    def same(inputs: dict[str, Any]) -> dict[str, Any]:
        """New tensors: TensorFlow Transform refuses an input as output."""
        return {
            name: tf.nest.map_structure(tf.identity, value, expand_composites=True)
            for name, value in inputs.items()
        }

    metadata = dataset_metadata.DatasetMetadata(schema)
    path = pathlib.Path(folder).absolute()
    metadata_io.write_metadata(metadata, str(path / TFTransformOutput.RAW_METADATA_DIR))
    # As TFX's Transform runs a preprocessing_fn without analyzers.
    impl_helper.analyze_in_place(
        same,
        False,
        specs,
        impl_helper.get_type_specs_from_feature_specs(specs),
        str(path),
    )
    return str(path)
