"""The user's code: a tiny classifier of points, which side of a line they are on."""

import keras
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.public import tfxio

FEATURES = ("x", "y")
LABEL = "above"


def preprocessing_fn(inputs):
    scaled = {f"{name}_xf": tft.scale_to_z_score(inputs[name]) for name in FEATURES}
    return {**scaled, LABEL: inputs[LABEL]}


def run_fn(fn_args):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    dataset = fn_args.data_accessor.tf_dataset_factory(
        fn_args.train_files,
        tfxio.TensorFlowDatasetOptions(batch_size=20, label_key=LABEL),
        graph.transformed_metadata.schema,
    ).map(lambda columns, label: (tf.concat([columns[f"{n}_xf"] for n in FEATURES], 1), label))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    model.fit(dataset.repeat(), steps_per_epoch=fn_args.train_steps, verbose=2)

    spec = {name: kind for name, kind in graph.raw_feature_spec().items() if name != LABEL}
    served = tf.Module()
    served.model, served.layer = model, graph.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        columns = served.layer(tf.io.parse_example(examples, spec))
        points = tf.concat([tf.reshape(columns[f"{n}_xf"], [-1, 1]) for n in FEATURES], 1)
        return {"probability": served.model(points)}

    tf.saved_model.save(served, fn_args.serving_model_dir, {"serving_default": serve})
