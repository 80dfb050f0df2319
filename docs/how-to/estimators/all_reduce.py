"""Gradients that were summed over towers and over several batches: replicas and accumulate."""

import keras
import numpy as np

import stagecraft as sc

numbers = keras.Input((4,))
hidden = keras.layers.Dense(16, activation="relu")(numbers)
model = keras.Model(numbers, keras.layers.Dense(1)(hidden))

draw = np.random.default_rng(0)
x = draw.standard_normal((256, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

# 64 examples a step: 16 for each replica in each of two accumulation steps, then one all-reduce.
parallel = sc.Parallel(strategy="mirrored", replicas=2, accumulate=2, virtual_devices=2)
history = sc.fit(
    model, x, y, loss="mse", optimizer="sgd", parallel=parallel, batch_size=64, epochs=3
)
print(f"loss {history.history['loss'][-1]:.3f}")
