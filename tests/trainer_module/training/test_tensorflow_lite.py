"""Exported models in TensorFlow Lite: the signature without texts, and its answers."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small_tables
import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.components.example_gen.sample import to_example
from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.export import export

SIGNATURE = "serving_transformed"
TEXTS = ("Bonn", "Kiel", "Ulm")


def converted(folder: pathlib.Path) -> Callable[..., dict[str, np.ndarray]]:
    """The signature in TensorFlow Lite's interpreter; its converter uses no Flex operations."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[SIGNATURE])
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    call: Callable[..., dict[str, np.ndarray]] = interpreter.get_signature_runner(SIGNATURE)
    return call


def same(folder: pathlib.Path, examples: list[bytes], name: Callable[[str], str] = str) -> None:
    """Asserts that the converted model answers as ``serving_default``.

    Args:
        name: maps the name of a transformed feature to that of an input.
    """
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(examples))
    graph = tft.TFTransformOutput(str(folder / "assets.extra" / "transform_graph"))
    parsed = tf.io.parse_example(examples, graph.raw_feature_spec())
    transformed = graph.transform_features_layer()(parsed)
    call = converted(folder)
    inputs = call.get_input_details()  # type: ignore[attr-defined]
    found = call(**{name(key): x.numpy() for key, x in transformed.items() if name(key) in inputs})
    numbers = {key: value for key, value in served.items() if value.dtype != tf.string}
    assert found.keys() == numbers.keys()
    for key, value in numbers.items():
        # Kernels of TensorFlow Lite add up in another order.
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_pictures(tmp_path: pathlib.Path, training_data: Any) -> None:
    task = registries.TASKS.get("image_classification")
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(
        'feature { name: "label" type: INT int_domain { min: 0 max: 3 } }\n'
        'string_domain { name: "label_names" value: "a" value: "b" value: "c" value: "d" }'
    )
    transform = tft.TFTransformOutput(str(training_data.transform_graph))
    arguments = task.model_arguments(str(schema))
    model = assemble(TrainSettings(model="cnn"), arguments)
    weights = {variable.path: variable.numpy() for variable in model.variables}
    export(tmp_path / "model", model, weights, transform, task, str(schema))
    inputs = {features.IMAGE: "inputs"}
    same(tmp_path / "model", training_data.serialized("eval"), lambda name: inputs.get(name, name))


@pytest.mark.slow
def test_a_table_with_texts(tmp_path: pathlib.Path) -> None:
    """Its vocabularies are tables of texts, which stay in the other signatures."""
    draw = np.random.default_rng(0)
    rows = [
        {
            "price (€)": float(draw.normal()),
            "town": TEXTS[draw.integers(3)],
            "1st": int(draw.integers(5)),
            "sold": int(draw.integers(2)),
        }
        for _ in range(200)
    ]
    columns = {"price (€)": "numeric", "town": "vocabulary", "1st": "numeric"}
    args = {"features": columns, "label": "sold"}
    small_tables.trained(tmp_path, "binary_classification", rows, args, steps=3, batch_size=16)
    same(tmp_path / "model", [to_example(row).SerializeToString() for row in rows[:7]])


@pytest.mark.slow
def test_a_regression_with_a_scaled_label(tmp_path: pathlib.Path) -> None:
    """Other signatures scale predictions back in float64, which TensorFlow Lite lacks."""
    draw = np.random.default_rng(0)
    rows = [{"x": float(draw.normal()), "y": float(draw.normal(500, 20))} for _ in range(200)]
    args = {"features": {"x": "numeric"}, "label": "y"}
    small_tables.trained(tmp_path, "regression", rows, args, steps=3, batch_size=16)
    same(tmp_path / "model", [to_example(row).SerializeToString() for row in rows[:7]])
