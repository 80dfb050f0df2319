"""A script of a user's: objects of ``__main__``, several processes, logical devices."""

import keras
import numpy as np

import stagecraft as sc


def scaled_error(y, outputs):
    return 2 * keras.ops.mean(keras.ops.square(y - outputs), axis=-1)


class Shift(keras.layers.Layer):
    def call(self, inputs):
        return inputs + 1


def build() -> keras.Model:
    inputs = keras.Input((4,))
    hidden = Shift()(keras.layers.Dense(8, "relu")(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(hidden))


def main() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((50, 4)), draw.standard_normal((50, 2))
    model = build()  # TensorFlow starts here, with one logical device
    start = model.get_weights()
    arguments = {"loss": scaled_error, "batch_size": 16, "epochs": 2, "shuffle": False}
    arguments |= {"metrics": ["mae"], "validation_data": (x, y)}
    alone = sc.fit(model, x, y, **arguments)
    expected = model.get_weights()
    for parallel in (
        sc.Parallel(strategy="multi_worker_mirrored", workers=2),
        sc.Parallel(strategy="grid", stages=2, microbatches=2, virtual_devices=2),
    ):
        model.set_weights(start)
        stopping = keras.callbacks.EarlyStopping("val_loss", patience=5)
        history = sc.fit(model, x, y, parallel=parallel, callbacks=[stopping], **arguments)
        for one, two in zip(model.get_weights(), expected, strict=True):
            # Two epochs of float32 steps of 0.001: sums of 16 terms in another order.
            np.testing.assert_allclose(one, two, rtol=2**-18, atol=2**-18)
        for name, values in alone.history.items():
            np.testing.assert_allclose(history.history[name], values, rtol=2**-16)
        assert history.topology.strategy == parallel.strategy
    proof = sc.check_parity(model, x, parallel, y, loss=scaled_error, batch_size=16, steps=4)
    print(proof)
    assert proof and len(proof.rows) == 1 and "<table>" in proof._repr_html_()


if __name__ == "__main__":
    main()
