"""Warm-up requests, which TensorFlow Serving sends to a new version before it serves it.

The first request of a signature takes longer than the others: TensorFlow allocates memory and
optimizes the graph. The file is a TFRecord of PredictionLogs
(https://www.tensorflow.org/tfx/serving/saved_model_warmup). Serving does not load a version with a
request that fails, so each one is first tried here.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
from tfx import types
from tfx.types import artifact_utils

from stagecraft.common import errors
from stagecraft.schemas.features import IMAGE

FILE = "assets.extra/tf_serving_warmup_requests"

_OF_PIPELINE = ("transform_features", "evaluation")
"""Signatures that clients do not call."""

Inputs = Mapping[str, tf.Tensor]

_PROMPT = 100  # characters of a prompt at most

_log = logging.getLogger(__name__)


def records(examples: types.Artifact, split: str, count: int) -> list[bytes]:
    """The first examples of a split, serialized."""
    folder = pathlib.Path(artifact_utils.get_split_uri([examples], split))
    files = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    found: list[bytes] = []
    for file in files:
        compression = "GZIP" if file.suffix == ".gz" else ""
        dataset = tf.data.TFRecordDataset(str(file), compression)
        found += dataset.take(count - len(found)).as_numpy_iterator()
    return found


def requests(model: str, examples: Sequence[bytes]) -> bytes:
    """The content of the file: a request for each example and signature that clients call.

    A signature that takes none of these forms is left out, with a warning in the log: serialized
    examples; their raw or transformed features; pictures, decoded or as files; prompts of a
    language model.

    Args:
        model: folder of a SavedModel.
        examples: serialized tf.Examples.
    """
    with contextlib.suppress(ImportError):  # has the operations of a tokenizer
        importlib.import_module("tensorflow_text")
    loaded = tf.saved_model.load(model)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "requests")
        with tf.io.TFRecordWriter(str(path)) as writer:
            for name, signature in sorted(loaded.signatures.items()):
                if name in _OF_PIPELINE:
                    continue
                try:
                    made = [_tried(signature, each) for each in _inputs(loaded, name, examples)]
                except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
                    _log.warning("%s: no warm-up requests: %s", name, errors.said(error))
                    continue
                for inputs in made:
                    writer.write(_logged(name, inputs).SerializeToString(deterministic=True))
        return path.read_bytes()


def _tried(signature: Any, inputs: Inputs) -> Inputs:
    signature(**inputs)
    return inputs


def _logged(signature: str, inputs: Inputs) -> prediction_log_pb2.PredictionLog:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(signature_name=signature))
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )


def _inputs(loaded: Any, name: str, examples: Sequence[bytes]) -> Iterator[Inputs]:
    """The inputs of a signature for each example; a ValueError if it takes no known form."""
    specs: Mapping[str, tf.TensorSpec] = loaded.signatures[name].structured_input_signature[1]
    parsed = [tf.train.Example.FromString(each).features.feature for each in examples]
    raw = {name for features in parsed for name in features}
    for serialized, features in zip(examples, parsed, strict=True):
        if set(specs) == {"examples"}:
            yield {"examples": tf.constant([serialized])}
        elif set(specs) <= raw:
            yield {each: _column(features[each], spec) for each, spec in specs.items()}
        elif set(specs) == {"files"}:
            yield {"files": tf.constant([_picture(features)])}
        elif set(specs) == {"images"}:
            yield {"images": _decoded(_picture(features), specs["images"])}
        elif set(specs) == {"prompts", "temperature", "seed"}:
            values = {"prompts": [_text(features)], "temperature": 0.0, "seed": 0}
            yield {each: tf.constant(value, specs[each].dtype) for each, value in values.items()}
        else:
            yield _transformed(loaded, serialized, specs)


def _column(feature: tf.train.Feature, spec: tf.TensorSpec) -> tf.Tensor:
    """``[1]``, or ``[1, n]`` of a list; an empty text, NaN or 0 for a missing value."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    missing = {tf.string: b"", tf.float32: math.nan}.get(spec.dtype, 0)
    if spec.shape.rank == 1:
        return tf.constant(values[:1] or [missing], spec.dtype)
    return tf.constant([values or [missing]], spec.dtype)


def _picture(features: Mapping[str, tf.train.Feature]) -> bytes:
    if values := features[IMAGE].bytes_list.value if IMAGE in features else ():
        return bytes(values[0])
    raise ValueError(f"the examples have no picture {IMAGE}")


def _decoded(picture: bytes, spec: tf.TensorSpec) -> tf.Tensor:
    """``[1, height, width, channels]``, from a file or from the values."""
    shape = spec.shape[1:]
    if shape.is_fully_defined() and len(picture) == shape.num_elements() * spec.dtype.size:
        return tf.reshape(tf.io.decode_raw(picture, spec.dtype), [1, *shape])
    decoded = tf.io.decode_image(picture, shape[-1] or 0, spec.dtype, expand_animations=False)
    return decoded[tf.newaxis]


def _text(features: Mapping[str, tf.train.Feature]) -> str:
    texts = (each.bytes_list.value for _, each in sorted(features.items()))
    text = next((bytes(values[0]) for values in texts if values), b"")
    return text.decode(errors="ignore")[:_PROMPT]


def _transformed(loaded: Any, example: bytes, specs: Mapping[str, tf.TensorSpec]) -> Inputs:
    found = loaded.signatures["transform_features"](examples=tf.constant([example]))
    if set(specs) == {"inputs"}:
        (spec,) = specs.values()
        like = [
            value
            for name, value in found.items()
            if value.dtype == spec.dtype and spec.shape.is_compatible_with(value.shape)
        ]
        if len(like) != 1:
            raise ValueError("no transformed feature, or several, may be the input")
        return {"inputs": like[0]}
    return {name: tf.cast(found[name], spec.dtype) for name, spec in specs.items()}
