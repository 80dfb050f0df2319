"""Reads the class names from the schema."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from stagecraft.schemas import features, missing_features
from stagecraft.schemas.errors import UserError

LABEL_NAMES = "label_names"
"""Name of the schema-level ``string_domain`` that lists the classes, in order."""


def class_names(schema_path: str) -> tuple[str, ...]:
    """Name of each class, from a TFDV schema as a text proto.

    The names are the values of the schema's ``string_domain`` named ``label_names``, one for each
    value of the label's ``int_domain``; without that domain, ``"0"`` to ``"n-1"``.

    Raises:
        UserError: the file is no schema, has no label, or the label's range is unknown, does not
            begin at 0, or does not fit the number of names.
    """
    schema = read(schema_path)
    label = next((f for f in schema.feature if f.name == features.LABEL), None)
    if label is None:
        known = ", ".join(f.name for f in schema.feature) or "none"
        raise UserError(
            f"{schema_path}: the schema has no feature {features.LABEL!r} (its features: {known})",
            file=schema_path,
            record=features.LABEL,
        )
    domain = label.int_domain
    if not label.HasField("int_domain") or not domain.HasField("max") or domain.min != 0:
        raise UserError(
            f"{schema_path}: feature {features.LABEL!r} needs a range from 0; for ten "
            "classes: int_domain { min: 0 max: 9 }",
            file=schema_path,
            record=features.LABEL,
            suggestion="int_domain { min: 0 max: 9 }",
        )
    count = domain.max + 1
    names = next((d.value for d in schema.string_domain if d.name == LABEL_NAMES), None)
    if names is None:
        return tuple(str(index) for index in range(count))
    if len(names) != count:
        raise UserError(
            f"{schema_path}: string_domain {LABEL_NAMES!r} has {len(names)} names, but feature "
            f"{features.LABEL!r} has {count} values (int_domain max: {domain.max})",
            file=schema_path,
            record=LABEL_NAMES,
        )
    return tuple(names)


def check_features(schema_path: str, names: Sequence[str] = features.ALL) -> None:
    """Checks that a schema has the raw features of a task."""
    missing_features.check(
        schema_path,
        (feature.name for feature in read(schema_path).feature),
        names,
        "add each missing feature, as in schemas/cifar10.pbtxt of Stagecraft",
    )


def read(schema_path: str) -> schema_pb2.Schema:
    """A TFDV schema, from its text proto.

    Raises:
        UserError: the file cannot be read, or is no schema.
    """
    try:
        with tf.io.gfile.GFile(schema_path) as file:
            return text_format.Parse(file.read(), schema_pb2.Schema())
    except tf.errors.OpError as error:
        cause = error.message.removeprefix(f"{schema_path}; ")
        raise UserError(
            f"{schema_path}: cannot read the schema: {cause}", file=schema_path
        ) from None
    except text_format.ParseError as error:
        raise UserError(
            f"{schema_path}: not a schema in text format: {error}", file=schema_path
        ) from None
