"""Writes the SavedModel for evaluation and serving.

The SavedModel contains the transform and the model, names no device, and loads in plain TensorFlow
without this project, TFX or Keras. Its signatures:

    serving_default      examples: string [batch], serialized tf.Example -> the task's outputs
    transform_features   examples: string [batch] -> the transformed features, label included

and those of the task. For pictures:

    serving_files        files: string [batch], if the raw pictures are files
    serving_images       images: uint8 [batch, height, width, channels]
        all give         logits         float32 [batch, classes]
                         probabilities  float32 [batch, classes]
                         class_id       int64   [batch]
                         class_name     string  [batch]

Without texts, and without the transform, so that TensorFlow Lite converts it; each dense input and
each output that is a number:

    serving_transformed  the model's inputs, transformed: "inputs", or by name -> the task's outputs

For a task that is no classification by label (``Task.class_label``):

    evaluation           examples: string [batch], with targets ->
                         loss           float32 [batch]
                         metrics        [batch, sizes of all metrics]: Metric.terms; float32, or
                                        float64 if a metric needs it
                         weights        float32 [batch], of the examples
                         key            int64   [batch], a hash of the example
                         sampled_NAME   float32 [batch], of Task.sampled
                         constant       [batch, 3], with Task.constant: the example's weight when
                                        both are compared; decisive_values of the model, and of the
                                        constant; dtype as metrics

The variables are ``model_variables``, a list; ``assets.extra/variable_paths.json`` has their Keras
paths, in the same order. ``assets.extra/transform_graph`` is the Transform graph that the weights
belong to.

TensorFlow saves a signature under names of ops alone. The format has no such limit: TensorFlow
Serving takes any name in a request, and so does the function that ``tf.saved_model.load`` returns.
So the inputs get the names that people chose, after the model is saved.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import safe_names
from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.task import Served, Task
from stagecraft.trainer_module.models.initial_weights import transform_graph_match
from stagecraft.trainer_module.models.initial_weights.source import VARIABLE_PATHS
from stagecraft.trainer_module.optimization.loss import Losses
from stagecraft.trainer_module.optimization.make_loss import make_loss
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training import assets, test_time_augmentation

Tensors = Mapping[str, tf.Tensor]

_UNDATED = (1980, 1, 1, 0, 0, 0)

_METADATA = "metadata.json"

_EXAMPLES = tf.TensorSpec([None], tf.string, name="examples")

Functions = dict[str, tuple[Callable[..., Any], Any]]
"""Functions of one tensor and its spec, or of named ones and their specs, by signature."""


def restore_input_names(folder: pathlib.Path, signatures: Mapping[str, Iterable[str]]) -> None:
    """Renames inputs that were saved under the safe names of :func:`safe_names.distinct`.

    In Python, TensorFlow compares names without regard to odd characters. Where these make names
    equal, a call in Python still takes the safe names.

    Args:
        folder: of the SavedModel.
        signatures: the names of the inputs of each signature.
    """
    path = folder / "saved_model.pb"
    names = {
        key: {safe: name for name, safe in safe_names.distinct(given).items() if safe != name}
        for key, given in signatures.items()
    }
    if not any(names.values()):
        return
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    graph = model.meta_graphs[0]
    nodes = graph.object_graph_def.nodes
    [functions] = (each.node_id for each in nodes[0].children if each.local_name == "signatures")
    for child in nodes[functions].children:
        changed = names.get(child.local_name, {})
        inputs = graph.signature_def[child.local_name].inputs
        for safe, name in changed.items():
            inputs[name].CopyFrom(inputs.pop(safe))
        keywords = nodes[child.node_id].bare_concrete_function.argument_keywords
        like = Counter(_argument(changed.get(each, each)) for each in keywords)
        keywords[:] = [
            changed.get(each, each) if like[_argument(changed.get(each, each))] == 1 else each
            for each in keywords
        ]
    path.write_bytes(model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(str(folder))


def _argument(name: str) -> str:
    """The name of an argument that TensorFlow makes of a name in a call."""
    made = "".join(each if each.isalnum() else "_" for each in name)
    return made if made[:1].isalpha() else f"arg_{made}"


def export(
    folder: str | os.PathLike[str],
    model: keras.Model,
    weights: Mapping[str, np.ndarray],
    transform: tft.TFTransformOutput,
    task: Task,
    schema_path: str,
    *,
    losses: Losses | None = None,
    constant: np.ndarray | None = None,
    with_keras: bool = False,
    test_time_augment: str | None = None,
) -> None:
    """Writes the SavedModel to ``folder``, whole or not at all.

    Args:
        folder: replaced if it exists.
        model: a copy of the model, built outside of any strategy and device scope, so that the
            SavedModel names no device; its weights are overwritten.
        weights: variable path -> value, as ``Engine.weights`` returns them.
        schema_path: TFDV schema (text proto), for the names of classes.
        losses: of the training; None: those of the task.
        constant: the sums of ``Task.constant`` over the train split; None: the signature
            ``evaluation`` has no output ``constant``.
        with_keras: also write ``assets.extra/model.keras``, without test-time augmentation.
        test_time_augment: of the settings; all signatures of the model then give, and evaluate, the
            mean of the logits of several views.

    Raises:
        UserError: the disk is full, ``folder`` is not writable, or Keras cannot load the model
            back.
    """
    for variable in model.variables:
        variable.assign(weights[variable.path])
    # The loader, not TFT's layer: saving that tf_keras model would take seconds.
    loader = _Loader(transform.transform_savedmodel_dir)
    module = tf.Module()
    # All that the signatures use must be reachable from the module.
    module.model_variables = [variable.value for variable in model.variables]
    module.transform = vars(loader)
    call = test_time_augmentation.averaged(
        functools.partial(model, training=False), test_time_augment
    )
    served = _served(call, loader.apply_transform_model, transform, task, schema_path, model)
    if resources := list(task.resources()):
        module.task = resources
    losses = losses or make_loss(task, TrainSettings())
    evaluate = functools.partial(evaluated, call, task=task, losses=losses, constant=constant)
    plain = task.in_float32()
    of_plain = _served(call, loader.apply_transform_model, transform, plain, schema_path, model)
    functions = _functions(served, task, evaluate, _of_numbers(of_plain, plain))
    signatures = {name: _concrete(*each) for name, each in functions.items()}
    with atomic_folder(folder) as aside:
        try:
            tf.saved_model.save(module, str(aside), signatures=signatures)
        except AssertionError:  # a table, or a variable that only the Keras layer tracks
            module.model = model  # stores all weights a second time
            tf.saved_model.save(module, str(aside), signatures=signatures)
        named = {name: spec for name, (_, spec) in functions.items() if isinstance(spec, Mapping)}
        restore_input_names(aside, named)
        paths = pathlib.Path(aside, VARIABLE_PATHS)
        paths.parent.mkdir()
        paths.write_text(json.dumps([variable.path for variable in model.variables], indent=1))
        transform_graph_match.keep(transform, paths.parent)
        if task.class_label is None:
            sizes = [[metric.name, metric.size] for metric in task.metrics()]
            text = json.dumps({"task": task.name, "metrics": sizes}, indent=1)
            pathlib.Path(aside, assets.METRICS).write_text(text)
        if task.class_names is not None:
            text = json.dumps(list(task.class_names), ensure_ascii=False)
            pathlib.Path(aside, assets.CLASSES).write_text(text, encoding="utf-8")
        if samples := task.samples(served):
            text = json.dumps(dict(samples), indent=1, ensure_ascii=False)
            pathlib.Path(aside, assets.SAMPLES).write_text(text, encoding="utf-8")
        if with_keras:
            _write_keras_file(model, pathlib.Path(aside, assets.KERAS))


class _Loader(SavedModelLoader):
    """TFT's loader, with the same graph in each process.

    TFT adds the features that a request lacks in the order of a set, which differs between
    processes. The Pusher would take two exports of one model for two models.
    """

    def _get_unfed_input_keys(self, input_tensor_keys: Iterable[str]) -> list[str]:
        return sorted(super()._get_unfed_input_keys(input_tensor_keys))


def _served(
    call: Callable[[Nest], Nest],
    transform: Callable[[Tensors], Tensors],
    graph: tft.TFTransformOutput,
    task: Task,
    schema_path: str,
    model: keras.Model,
) -> Served:
    def in_own_unit(inputs: Nest) -> Nest:
        return task.own_unit(call(inputs), None)[0]

    def predict(raw: Tensors) -> Tensors:
        inputs = task.batch(transform(raw), weights=None).inputs
        return task.outputs(in_own_unit(inputs), schema_path)

    raw_spec = graph.raw_feature_spec()
    return Served(
        predict,
        transform,
        in_own_unit,
        raw_spec,
        graph.vocabulary_by_name,
        schema_path=schema_path,
        model=model,
    )


def _functions(
    served: Served, task: Task, evaluate: Callable[[Batch], Tensors], more: Functions
) -> Functions:
    """The function of each signature; ``more``: functions besides those of each task."""
    transform, raw_spec = served.transform, served.raw_spec

    # Functions, not methods: saved_model.save refuses a method with an input signature.
    def serving_default(examples: tf.Tensor) -> Tensors:
        # The model's features alone: a request has no label.
        return served.predict(task.parse_request(examples, raw_spec))

    def transform_features(examples: tf.Tensor) -> Tensors:
        return dict(transform(tf.io.parse_example(examples, raw_spec)))

    def evaluation(examples: tf.Tensor) -> Tensors:
        features = transform(tf.io.parse_example(examples, raw_spec))
        batch = task.batch(features, tf.ones(tf.shape(examples)))
        made = _one_by_one(evaluate, batch) if task.evaluates_singly else evaluate(batch)
        return {**made, "key": tf.strings.to_hash_bucket_fast(examples, tf.int64.max)}

    functions: Functions = {
        "serving_default": (serving_default, _EXAMPLES),
        **task.plain_signatures(served),
        **more,
        "transform_features": (transform_features, _EXAMPLES),
    }
    if task.class_label is None:
        functions["evaluation"] = (evaluation, _EXAMPLES)
    return functions


def _of_numbers(served: Served, task: Task) -> Functions:
    """The signature ``serving_transformed``.

    There is none for a model with an input of text, or not dense, or with two of the same name.

    Operations of texts and of parsing are in no TensorFlow Lite runtime without Flex.
    """

    def inputs(examples: tf.Tensor) -> Nest:
        features = served.transform(task.parse_request(examples, served.raw_spec))
        return task.batch(features, weights=None).inputs

    traced = tf.function(inputs, autograph=False).get_concrete_function(_EXAMPLES)
    structure = traced.structured_outputs
    pairs = keras.tree.flatten_with_path(structure)
    specs = {"_".join(map(str, path)) or "inputs": each for path, each in pairs}
    is_dense = all(isinstance(x, tf.Tensor) and x.dtype != tf.string for x in specs.values())
    if not is_dense or len(specs) < len(pairs):
        return {}

    def serving_transformed(**tensors: tf.Tensor) -> Tensors:
        packed = keras.tree.pack_sequence_as(structure, [tensors[name] for name in specs])
        found = task.outputs(served.call(packed), served.schema_path)
        return {name: value for name, value in found.items() if value.dtype != tf.string}

    return {"serving_transformed": (serving_transformed, specs)}


def _one_by_one(evaluate: Callable[[Batch], Tensors], batch: Batch) -> Tensors:
    """``evaluate`` in the memory of one example: TFMA may call it with a thousand."""

    def first(parts: Any) -> Tensors:
        alone = Batch(*tf.nest.map_structure(lambda part: part[tf.newaxis], tuple(parts)))
        return {name: value[0] for name, value in evaluate(alone).items()}

    def spec(part: tf.Tensor) -> tf.TensorSpec:
        return tf.TensorSpec(part.shape[1:], part.dtype)

    specs = tf.nest.map_structure(spec, tuple(batch))
    traced = tf.function(first, autograph=False).get_concrete_function(specs)
    made = tf.nest.map_structure(
        lambda one: tf.TensorSpec(one.shape, one.dtype), traced.structured_outputs
    )
    results: Tensors = tf.map_fn(
        first, tuple(batch), fn_output_signature=made, parallel_iterations=1
    )
    return results


def evaluated(
    call: Callable[[Nest], Nest],
    batch: Batch,
    task: Task,
    losses: Losses,
    constant: np.ndarray | None = None,
) -> Tensors:
    """Values of each example that the Evaluator adds up.

    Args:
        call: maps inputs to outputs.
        constant: the sums of ``Task.constant``.
    """
    outputs = call(batch.inputs)
    dtype = metric.dtype_of_sums(task.metrics(), tf.float32)
    own = task.own_unit(outputs, batch.targets)
    terms = [each.terms(*own, dtype) for each in task.metrics()]
    found = {
        "loss": losses(outputs, batch.targets, tf.float32, False),
        "weights": batch.weights,
        **{f"sampled_{name}": x for name, x in task.sampled(*own).items()},
    }
    result = {name: tf.cast(value, tf.float32) for name, value in found.items()}
    if terms:
        result["metrics"] = tf.concat(terms, axis=1)
    if constant is not None:
        result["constant"] = _compared(outputs, batch, task, losses, constant, dtype)
    return result


def _compared(
    outputs: Nest, batch: Batch, task: Task, losses: Losses, sums: np.ndarray, dtype: tf.DType
) -> tf.Tensor:
    """``[weight, value of the model, value of the constant]`` of each example."""
    constant = task.constant()
    assert constant is not None
    both = outputs, constant.outputs(sums, batch.targets)
    pair = [task.decisive_values(losses, each, batch.targets, dtype) for each in both]
    return tf.stack([tf.cast(task.comparison_weights(batch), dtype), *pair], axis=1)


def _concrete(function: Callable[..., Any], spec: Any) -> tf.types.experimental.ConcreteFunction:
    """A function of one tensor, or of named ones under their safe names."""
    if not isinstance(spec, Mapping):
        return tf.function(function, autograph=False).get_concrete_function(spec)
    names = safe_names.distinct(spec)

    def renamed(**given: Any) -> Any:
        return function(**{name: given[safe] for name, safe in names.items()})

    renamed.__name__ = function.__name__
    specs = {
        safe: tf.TensorSpec(spec[name].shape, spec[name].dtype, name=safe)
        for name, safe in names.items()
    }
    return tf.function(renamed, autograph=False).get_concrete_function(**specs)


def check_keras_file(model: keras.Model) -> None:
    """Checks that Keras can load the model back.

    Raises:
        SettingError: it cannot.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        try:
            _write_keras_file(model, path)
            keras.saving.load_model(path, compile=False)
        except OSError:  # of the disk
            raise
        except Exception as error:  # whatever a layer's get_config or from_config raises
            reason = " ".join(str(error).split()).partition(". ")[0] or type(error).__name__
            raise SettingError(
                "train.export_keras",
                True,
                f"is refused, because Keras cannot load the model back: {reason[:300].rstrip('.')}",
                "@keras.saving.register_keras_serializable() and get_config for each of your "
                "layers and models, or train.export_keras: false",
            ) from error


def _write_keras_file(model: keras.Model, path: pathlib.Path) -> None:
    """Writes a ``.keras`` file that has the same bytes for the same model: without dates."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        dated = pathlib.Path(folder, "model.keras")
        model.save(dated)
        with zipfile.ZipFile(dated) as given, zipfile.ZipFile(path, "w") as file:
            for name in sorted(given.namelist()):
                content = given.read(name)
                if name == _METADATA:
                    metadata = json.loads(content)
                    metadata.pop("date_saved", None)
                    content = json.dumps(metadata).encode()
                file.writestr(zipfile.ZipInfo(name, _UNDATED), content)
