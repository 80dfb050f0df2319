"""Trains on logical CPUs in a process of its own; prints the largest differences as JSON."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import stagecraft as sc
from stagecraft.fitting.fit import fit


def image_model() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    hidden = keras.layers.Conv2D(4, 3, activation="relu")(inputs)
    hidden = keras.layers.MaxPooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(hidden)))


def two_inputs() -> keras.Model:
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    hidden = keras.layers.Concatenate()([keras.layers.Dense(8)(left), right])
    hidden = keras.layers.Dense(8, "tanh")(hidden)
    return keras.Model([left, right], keras.layers.Dense(3)(hidden))


TOPOLOGIES = {
    "grid": {"strategy": "grid", "replicas": 2, "stages": 2, "microbatches": 2},
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "auto": {"strategy": "auto", "stages": 2},
}


def main() -> dict[str, float]:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 52)
    cases = {
        "images": (image_model, draw.standard_normal((52, 8, 8, 3))),
        "two inputs": (two_inputs, [draw.standard_normal((52, 4)) for _ in range(2)]),
    }
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = {}
    for case, (build, x) in cases.items():
        model = build()
        start = model.get_weights()
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        expected = model.get_weights()
        for name, parallel in TOPOLOGIES.items():
            if case == "images" and name != "grid":
                continue
            model.set_weights(start)
            history = fit(
                model,
                x,
                y,
                loss=loss,
                optimizer=keras.optimizers.Adam(0.01),
                parallel=sc.Parallel(**parallel, virtual_devices=4),
                batch_size=16,
                shuffle=False,
                verbose=0,
                validation_data=(x, y),
                metrics=["accuracy"],
            )
            pairs = zip(model.get_weights(), expected, strict=True)
            found[f"{case}, {name}"] = max(float(abs(a - b).max()) for a, b in pairs)
            expected_strategy = {"auto": "grid"}.get(name, parallel["strategy"])
            assert history.topology.strategy == expected_strategy
            assert (history.plan is not None) == ("stages" in parallel)
            assert history.plan is None or len(history.plan.stages) == 2
    return found


if __name__ == "__main__":
    json.dump(main(), sys.stdout)
