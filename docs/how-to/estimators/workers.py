"""RunConfig(train_distribute=MultiWorkerMirroredStrategy()) becomes workers.

On one machine, the processes start by themselves. On several machines, each process has a
TF_CONFIG, with the content that Estimators had.
"""

import keras
import numpy as np

import stagecraft as sc


def build():
    """The model, in a function: processes connect before they make models."""
    numbers = keras.Input((4,))
    hidden = keras.layers.Dense(16, activation="relu")(numbers)
    return keras.Model(numbers, keras.layers.Dense(1)(hidden))


def main():
    """Trains on two processes."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((256, 4)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    parallel = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
    history = sc.fit(
        build, x, y, loss="mse", optimizer="adam", parallel=parallel, batch_size=32, epochs=3
    )
    print(f"loss {history.history['loss'][-1]:.3f}")


if __name__ == "__main__":
    main()
