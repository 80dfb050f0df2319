"""Layers that a model_fn placed with tf.device on GPUs 0, 1 and 2 become three stages."""

import keras
import numpy as np

import stagecraft as sc

images = keras.Input((16, 16, 3))
hidden = keras.layers.Conv2D(8, 3, activation="relu", name="first")(images)  # on GPU 0
hidden = keras.layers.Conv2D(8, 3, activation="relu", name="second")(hidden)  # on GPU 1
hidden = keras.layers.GlobalAveragePooling2D()(hidden)  # on GPU 2
model = keras.Model(images, keras.layers.Dense(10)(hidden))

draw = np.random.default_rng(0)
pictures = draw.standard_normal((128, 16, 16, 3)).astype("float32")
labels = draw.integers(0, 10, 128)

parallel = sc.Parallel(
    strategy="grid",
    stages=3,
    cuts="first,second",  # the last layers of the first two stages
    microbatches=4,
    virtual_devices=3,  # without GPUs; with GPUs: devices="GPU:0,GPU:1,GPU:2"
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
history = sc.fit(
    model, pictures, labels, loss=loss, optimizer="sgd", parallel=parallel, batch_size=32, epochs=2
)
print(f"loss {history.history['loss'][-1]:.3f}")
