"""A script that runs in each process of TF_CONFIG, and calls Keras's own fit."""

import json
import os
import sys

import numpy as np

import stagecraft as sc

SETTINGS = {
    "one": None,
    "workers": {"strategy": "multi_worker_mirrored"},
    "stages": {"strategy": "grid", "stages": 2, "microbatches": 2, "virtual_devices": 2},
    "other data": {"strategy": "multi_worker_mirrored"},
}


def main(name: str, file: str) -> None:
    parallel = SETTINGS[name] and sc.connect(sc.Parallel(**SETTINGS[name]))

    import keras
    import tensorflow as tf
    from keras import layers

    class Notes(keras.callbacks.Callback):
        """Works in the chief alone, with its model alone."""

        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            logs["predicted"] = float(self.model.predict(tokens[:5], verbose=0)["a"].sum())

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,), dtype="int32")
    hidden = layers.Embedding(20, 8, mask_zero=True)(inputs)
    hidden = layers.LSTM(8, return_sequences=True, dropout=0.2)(hidden)
    hidden = layers.GlobalAveragePooling1D()(layers.Dropout(0.3)(hidden))
    hidden = layers.Dense(6, "tanh", activity_regularizer="l2", kernel_regularizer="l2")(hidden)
    outputs = {"a": layers.Dense(3, name="a")(hidden), "b": layers.Dense(1, name="b")(hidden)}
    model = keras.Model(inputs, outputs)
    tokens = np.random.default_rng(0).integers(0, 20, (45, 6))
    targets = {
        "a": np.random.default_rng(1).integers(0, 3, 45),
        "b": np.random.default_rng(2).normal(size=(45, 1)),
    }
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.Adam(0.01, clipnorm=0.1),
        {"a": classes, "b": "mse"},
        metrics={"a": ["accuracy"], "b": ["mae"]},
    )
    if parallel:
        if place():  # other weights than the chief's
            model.set_weights([2 * weight for weight in model.get_weights()])
        sc.parallelize(model, parallel)
    before = model.evaluate(tokens, targets, verbose=0)
    if name == "other data":
        data = tf.data.Dataset.from_tensor_slices((tokens, targets)).batch(8)
        try:
            model.fit(data.skip(place()), verbose=0)
        except sc.UserError as error:
            print("refused:", error.setting, flush=True)
            os._exit(0)  # no process waits for the others
    stopping = keras.callbacks.EarlyStopping("loss", mode="max", patience=1)
    slower = keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=0)
    history = model.fit(
        tokens,
        targets,
        batch_size=8,
        epochs=4,
        verbose=0,
        validation_split=0.2,
        callbacks=[Notes(), slower, stopping],
    )
    predicted = model.predict(tokens, verbose=0)
    numbers = model.evaluate(tokens, targets, verbose=0)
    if place() == 0:
        values = [values for _, values in sorted(history.history.items())]
        np.savez(file, *model.get_weights(), *predicted.values(), before, numbers, *values)
    assert len(history.epoch) == 2  # the chief stopped all of them


def place() -> int:
    return int(json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"])


if __name__ == "__main__":
    main(*sys.argv[1:])
