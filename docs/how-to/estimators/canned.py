"""DNNLinearCombinedRegressor on two workers; each parses only its rows of a batch."""

import numpy as np

import stagecraft as sc
from stagecraft.estimator import DNNLinearCombinedRegressor, Embedding, Listed, Numeric

TOWN = Listed(["Ulm", "Bonn", "Kiel"])

PRICES = DNNLinearCombinedRegressor(
    linear_feature_columns={"town": TOWN},
    linear_optimizer={"name": "Ftrl", "learning_rate": 0.1},
    dnn_feature_columns={"area": Numeric(), "town": Embedding(TOWN, dimension=2)},
    dnn_optimizer={"name": "Adagrad", "learning_rate": 0.1},
    dnn_hidden_units=[16, 8],
    label="price",
)
task, model, settings = PRICES.task, PRICES.model, PRICES.train_settings  # of a pipeline


def main():
    """Trains on rows as Transform makes them."""
    draw = np.random.default_rng(0)
    area, town = draw.standard_normal((512, 1)), draw.integers(0, 3, (512, 1))
    price = 2 * area + town  # what Transform makes of the columns: a z-score, and an id
    inputs = {"area": area.astype("float32"), "town": town}
    history = sc.fit(
        PRICES.build(),
        inputs,
        price.astype("float32"),
        loss=PRICES.loss,
        optimizer="adagrad",
        parallel=sc.Parallel(strategy="multi_worker_mirrored", workers=2),
        batch_size=64,
        epochs=3,
    )
    print(f"loss {history.history['loss'][-1]:.3f}")


if __name__ == "__main__":
    main()
