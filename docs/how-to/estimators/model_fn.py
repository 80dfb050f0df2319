"""A model_fn in a pipeline; see model_fn.yaml. Run this file to write houses.csv."""

import keras
import tensorflow as tf

from stagecraft.estimator import EstimatorSpec, ModeKeys, Numeric, from_model_fn


def model_fn(features, labels, mode, params):
    """Predicts the price of a house."""
    joined = tf.concat([features["area"], features["rooms"]], axis=1)
    hidden = keras.layers.Dense(params["units"], activation="relu")(joined)
    hidden = keras.layers.Dropout(0.1)(hidden, training=mode == ModeKeys.TRAIN)
    with tf.compat.v1.variable_scope("head"):
        kernel = tf.compat.v1.get_variable("kernel", [params["units"], 1])
        bias = tf.compat.v1.get_variable("bias", [1], initializer=tf.zeros_initializer())
    price = tf.matmul(hidden, kernel)[:, 0] + bias
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"price": price})
    errors = price - labels
    # No train_op: train.optimizer names the optimizer. A metric has a value for each example.
    return EstimatorSpec(
        mode, loss=tf.reduce_mean(errors**2), eval_metric_ops={"mae": tf.abs(errors)}
    )


HOUSES = from_model_fn(
    model_fn,
    params={"units": 16},
    features={"area": Numeric(), "rooms": Numeric()},
    labels="price",
    metrics={"mae": "min"},
)
task, model = HOUSES.task, HOUSES.model


def main():
    """Writes houses.csv."""
    import random

    random.seed(0)
    with open("houses.csv", "w") as file:
        file.write("area,rooms,price\n")
        for _ in range(1000):
            area, rooms = random.uniform(30, 200), random.randint(1, 6)
            file.write(f"{area:.1f},{rooms},{area / 50 + rooms:.2f}\n")


if __name__ == "__main__":
    main()
