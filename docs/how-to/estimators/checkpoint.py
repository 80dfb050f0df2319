"""The checkpoint of a LinearRegressor becomes the weights of its successor."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

import stagecraft as sc
from stagecraft.estimator import LinearRegressor, Listed, Numeric

PRICES = LinearRegressor(
    {"area": Numeric(normalizer="none"), "town": Listed(["Ulm", "Bonn", "Kiel"])}, label="price"
)


def write(folder):
    """Stands for the Estimator: writes the variables of its model."""
    values = {
        "linear/linear_model/area/weights": [[3.0]],
        "linear/linear_model/town/weights": [[50.0], [100.0], [0.0]],
        "linear/linear_model/bias_weights": [7.0],
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(name, initializer=np.float32(value), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        return saver.save(session, str(folder / "model.ckpt"), global_step=1000)


def main():
    """Predicts with the weights of the checkpoint."""
    prefix = write(pathlib.Path(sys.argv[1]))
    model = PRICES.build()
    weights = sc.estimator.load(prefix, PRICES)
    for variable in model.weights:
        variable.assign(weights[variable.path])
    rows = {"area": np.float32([[100], [50]]), "town": np.array([[1], [2]])}
    print(f"predictions {model.predict(rows, verbose=0)[:, 0].tolist()}")
    # In a pipeline, the same weights start a training: train.initial_weights: PREFIX


if __name__ == "__main__":
    main()
