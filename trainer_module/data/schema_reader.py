"""Reads the class names and the shape of the pictures from the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from stagecraft.common.errors import UserError
from stagecraft.schemas import features
from stagecraft.trainer_module import decoding

LABEL_NAMES = "label_names"
"""Name of the schema-level ``string_domain`` that lists the classes, in order."""

IMAGE_SHAPE_TAG = "image_shape="
"""Prefix of an annotation of the feature ``image``, such as ``image_shape=32x32x3``: height, width
and channels."""

IMAGE_FIT_TAG = "image_fit="
"""Prefix of another annotation, such as ``image_fit=crop``: encoded pictures of any size get
``image_shape`` in one of the ways of ``decoding.FITS``."""

IMAGE_BITS_TAG = "image_bits="
"""Prefix of another annotation: ``image_bits=16`` keeps all bits of PNGs with 16 bits."""

ENCODED_CHANNELS = (1, 3, 4)
"""Grey, RGB, RGBA: what encoded pictures are decoded to."""


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


def check_names(schema_path: str, count: int, setting: str) -> None:
    """Checks that the schema's ``label_names``, if it has any, are as many as the setting says.

    Raises:
        UserError: they are not.
    """
    names = next((d.value for d in read(schema_path).string_domain if d.name == LABEL_NAMES), None)
    if names is not None and len(names) != count:
        raise UserError(
            f"{schema_path}: string_domain {LABEL_NAMES!r} has {len(names)} names, but {setting} "
            f"is {count}",
            setting=setting,
            value=count,
            file=schema_path,
            record=LABEL_NAMES,
            suggestion=f"{setting}: {len(names)}",
        )


class Picture(NamedTuple):
    """The feature ``image`` as the schema describes it."""

    shape: tuple[int, int, int] = features.IMAGE_SHAPE
    """Height, width, channels."""

    encoded: bool = False
    """Whether its bytes are a file, such as a JPEG; otherwise uint8 values in HWC order."""

    fit: str | None = None
    """How encoded pictures of any size get the shape: one of ``decoding.FITS``; None: all have it.
    """

    bits: int = 8
    """Bits of a decoded value: 8 or 16."""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def config(self) -> dict[str, object]:
        """The ``custom_config`` of :func:`stagecraft.trainer_module.preprocessing`; for JSON."""
        found = {"image_shape": list(self.shape), "image_encoded": self.encoded}
        fit = {} if self.fit is None else {"image_fit": self.fit}
        return found | fit | ({} if self.bits == 8 else {"image_bits": self.bits})


def picture(schema_path: str) -> Picture:
    """The feature ``image`` of a schema file, see :func:`picture_of`."""
    return picture_of(read(schema_path))


def picture_of(schema: schema_pb2.Schema) -> Picture:
    """The feature ``image`` of a schema; the default if the schema has no such feature.

    An ``image_domain`` means an encoded picture. Tags of the annotation say more, see
    ``IMAGE_SHAPE_TAG``, ``IMAGE_FIT_TAG`` and ``IMAGE_BITS_TAG``.

    Raises:
        UserError: a tag has another form.
    """
    feature = next((each for each in schema.feature if each.name == features.IMAGE), None)
    if feature is None:
        return Picture()
    found: dict[str, tuple[str, ...]] = {}
    for tag in feature.annotation.tag:
        for prefix, (pattern, example) in _TAGS.items():
            if tag.startswith(prefix):
                match = re.fullmatch(pattern, tag[len(prefix) :])
                if match is None:
                    raise _refused_tag(tag, f"is unknown; use a tag such as {example!r}", example)
                found[prefix] = match.groups()
    height, width, channels = map(int, found.get(IMAGE_SHAPE_TAG, features.IMAGE_SHAPE))
    encoded, shape = feature.HasField("image_domain"), f"{IMAGE_SHAPE_TAG}{height}x{width}x"
    if encoded and channels not in ENCODED_CHANNELS:
        problem = "does not fit an image_domain, whose pictures are decoded to 1, 3 or 4 channels"
        raise _refused_tag(f"{shape}{channels}", problem, f"{shape}3")
    for prefix in (IMAGE_FIT_TAG, IMAGE_BITS_TAG):
        if prefix in found and not encoded:
            problem, use = "is only for encoded pictures", "image_domain {}"
            raise _refused_tag(f"{prefix}{found[prefix][0]}", f"{problem}; add {use}", use)
    return Picture(
        (height, width, channels),
        encoded,
        found.get(IMAGE_FIT_TAG, (None,))[0],
        int(found.get(IMAGE_BITS_TAG, "8")[0]),
    )


_TAGS = {
    IMAGE_SHAPE_TAG: (r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", f"{IMAGE_SHAPE_TAG}32x32x3"),
    IMAGE_FIT_TAG: (f"({'|'.join(decoding.FITS)})", f"{IMAGE_FIT_TAG}crop"),
    IMAGE_BITS_TAG: ("(8|16)", f"{IMAGE_BITS_TAG}16"),
}
"""Prefix of a tag -> what may follow, and an example."""


def _refused_tag(tag: str, problem: str, use: str) -> UserError:
    return UserError(
        f"The schema's feature {features.IMAGE!r} has the annotation {tag!r}, which {problem}.",
        record=features.IMAGE,
        value=tag,
        suggestion=use,
    )


def check_features(schema_path: str, names: Sequence[str] = features.ALL) -> None:
    """Checks that a schema has the raw features of a task."""
    features.require(
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
