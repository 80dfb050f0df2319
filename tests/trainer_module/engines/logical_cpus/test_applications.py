"""One model of each family of ``keras.applications``, held against Keras on one device."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import stagecraft as sc
from stagecraft.trainer_module.parallel.topology import set_graph_options

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("in_float64")]

SIDES = {
    **dict.fromkeys(("VGG16", "ResNet50", "ResNet50V2", "MobileNet", "MobileNetV2"), 32),
    **dict.fromkeys(("MobileNetV3Small", "DenseNet121", "NASNetMobile", "EfficientNetB0"), 32),
    **dict.fromkeys(("EfficientNetV2B0", "ConvNeXtTiny"), 32),
    **{"Xception": 71, "InceptionV3": 75, "InceptionResNetV2": 75},
}
"""Model -> the smallest height and width that it takes."""

TOPOLOGIES = {"stages": {"stages": 2}, "shards": {"shards": 2}}


def trained(name: str, parallel: sc.Parallel | None) -> list[np.ndarray]:
    """Losses, weights and outputs of two steps."""
    set_graph_options()  # with other ones, the rounding of Keras differs from its own by 1e-7
    side = SIDES[name]
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    draw = np.random.default_rng(0)
    images, labels = 255 * draw.random((4, side, side, 3)), draw.integers(0, 3, 4)
    kind = getattr(keras.applications, name)
    model = kind(weights=None, classes=3, input_shape=(side, side, 3))
    model.compile(keras.optimizers.SGD(1e-6), "sparse_categorical_crossentropy")
    if parallel is not None:
        sc.parallelize(model, parallel)
    losses = [model.train_on_batch(images, labels) for _ in range(2)]
    return [np.array(losses), *model.get_weights(), model.predict(images, verbose=0)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SIDES)
def test_a_model_trains_as_on_one_device(name):
    expected = trained(name, None)
    for shown, settings in TOPOLOGIES.items():
        found = trained(name, sc.Parallel(strategy="grid", **settings))
        for one, other in zip(expected, found, strict=True):
            # Shards add in another order, and normalization of four rows magnifies rounding.
            rounding = 1e-9 if shown == "stages" else 1e-7
            np.testing.assert_allclose(other, one, rtol=1e-7, atol=rounding, err_msg=shown)
