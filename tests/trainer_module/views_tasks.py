"""A user's tasks with pictures, and their models."""

import keras
import tensorflow as tf

from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.constant import Frequencies
from stagecraft.trainer_module.data.tasks.kinds.image_classification import ImageClassification
from stagecraft.trainer_module.data.tasks.task import Spec


class OneInput(ImageClassification):
    """Evaluated by the exported model itself."""

    name = "one_input"
    class_label = None


class TwoClasses(OneInput):
    """Its constant knows two classes; the labels are four."""

    name = "two_classes"

    def constant(self):
        return Frequencies(2, "the most frequent class")


class TwoInputs(ImageClassification):
    name = "two_inputs"

    def input_specs(self, arguments):
        return {"picture": Spec(arguments["input_shape"]), "light": Spec(())}

    def batch(self, features, weights):
        images = features[names.IMAGE]
        inputs = {"picture": images, "light": tf.reduce_mean(images, axis=[1, 2, 3])}
        return Batch(inputs, features.get(names.LABEL), weights)


class TwoOutputs(ImageClassification):
    name = "two_outputs"

    def check_outputs(self, name, outputs, arguments):
        super().check_outputs(name, outputs["logits"], arguments)

    def losses(self, outputs, targets, dtype, train):
        return super().losses(outputs["logits"], targets, dtype, train)

    def outputs(self, outputs, schema_path):
        return super().outputs(outputs["logits"], schema_path)


def one_output(input_shape, num_classes):
    pictures = keras.Input(input_shape)
    return keras.Model(pictures, _logits(pictures, num_classes))


def two_inputs(input_shape, num_classes):
    inputs = {"picture": keras.Input(input_shape), "light": keras.Input(())}
    light = keras.layers.Reshape((1, 1, 1))(inputs["light"])
    return keras.Model(inputs, _logits(inputs["picture"] + light, num_classes))


def two_outputs(input_shape, num_classes):
    pictures = keras.Input(input_shape)
    logits = _logits(pictures, num_classes)
    return keras.Model(pictures, {"logits": logits, "doubled": 2 * logits})


def _logits(pictures, num_classes):
    return keras.layers.Dense(num_classes)(keras.layers.Flatten()(pictures))


ONE_INPUT, TWO_INPUTS, TWO_OUTPUTS = OneInput(), TwoInputs(), TwoOutputs()
TWO_CLASSES = TwoClasses()
