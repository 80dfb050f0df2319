"""Two halves of a batch, which control dependencies joined, become two replicas."""

import keras
import numpy as np

import stagecraft as sc

numbers = keras.Input((4,))
hidden = keras.layers.Dense(16, activation="relu")(numbers)
model = keras.Model(numbers, keras.layers.Dense(1)(hidden))

draw = np.random.default_rng(0)
x = draw.standard_normal((256, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

# Each replica gets 16 of the 32 examples. A step ends when both have applied the same update.
parallel = sc.Parallel(strategy="mirrored", replicas=2, virtual_devices=2)
history = sc.fit(
    model, x, y, loss="mse", optimizer="adam", parallel=parallel, batch_size=32, epochs=3
)
print(f"loss {history.history['loss'][-1]:.3f}")
