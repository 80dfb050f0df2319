"""The public layers of Keras."""

import functools
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from catalogue.rows import Row, floats, image, row, shaped, tokens, vector, words

L = keras.layers
SEQUENCE = shaped(5, 4)
VOLUME = shaped(3, 4, 4, 2)
VOCABULARY = ["0", "1", "2", "3"]


def rows() -> Iterator[Row]:
    yield from _core()
    yield from _merging()
    yield from _convolutions()
    yield from _pooling()
    yield from _normalization()
    yield from _attention()
    yield from _recurrent()
    yield from _random()
    yield from _images()
    yield from _tables()
    yield from _others()


def _core() -> Iterator[Row]:
    yield row(lambda: L.Dense(5, activation="tanh"), vector)
    yield row(lambda: L.EinsumDense("ab,bc->ac", output_shape=5, bias_axes="c"), vector)
    yield row(lambda: L.Activation("gelu"), vector)
    yield row(L.ReLU, vector)
    yield row(L.LeakyReLU, vector)
    yield row(L.PReLU, vector)
    yield row(L.ELU, vector)
    yield row(L.Softmax, vector)
    yield row(L.Identity, vector)
    yield row(L.Flatten, SEQUENCE)
    yield row(lambda: L.Reshape((4, 5)), SEQUENCE)
    yield row(lambda: L.Permute((2, 1)), SEQUENCE)
    yield row(lambda: L.RepeatVector(3), vector)
    yield row(lambda: L.Lambda(lambda x: x * x), vector)
    yield row(lambda: L.Masking(0.5), SEQUENCE, after=lambda x: L.LSTM(3)(x))
    yield row(lambda: L.Embedding(5, 4), tokens)
    yield row(
        lambda: L.Embedding(5, 4, mask_zero=True),
        tokens,
        name="Embedding, mask_zero",
        after=lambda x: L.GRU(3)(x),
    )
    yield row(lambda: L.Rescaling(2.0, offset=1.0), vector)
    yield row(lambda: L.ActivityRegularization(l1=0.01, l2=0.02), vector)
    yield row(lambda: L.Dense(5, name="wrapped"), vector, name="InputLayer", covers=(L.InputLayer,))


def _merging() -> Iterator[Row]:
    def both(layer: Any, hidden: Any) -> Any:
        return layer([L.Dense(6)(hidden), L.Dense(6, activation="relu")(hidden)])

    kinds = (L.Add, L.Average, L.Concatenate, L.Maximum, L.Minimum, L.Multiply, L.Subtract)
    for kind in kinds:
        yield row(kind, vector, call=both)
    yield row(lambda: L.Dot(axes=1), vector, call=both)


def _convolutions() -> Iterator[Row]:
    yield row(lambda: L.Conv1D(3, 2), SEQUENCE)
    yield row(lambda: L.Conv1DTranspose(3, 2), SEQUENCE)
    yield row(lambda: L.DepthwiseConv1D(2), SEQUENCE)
    yield row(lambda: L.SeparableConv1D(3, 2), SEQUENCE)
    yield row(lambda: L.Conv2D(3, 2), image)
    yield row(lambda: L.Conv2DTranspose(3, 2), image)
    yield row(lambda: L.DepthwiseConv2D(2), image)
    yield row(lambda: L.SeparableConv2D(3, 2), image)
    yield row(lambda: L.Conv3D(3, 2), VOLUME)
    yield row(lambda: L.Conv3DTranspose(3, 2), VOLUME)
    for kind, before in ((1, SEQUENCE), (2, image), (3, VOLUME)):
        yield row(getattr(L, f"Cropping{kind}D"), before)
        yield row(getattr(L, f"ZeroPadding{kind}D"), before)
        yield row(getattr(L, f"UpSampling{kind}D"), before)


def _pooling() -> Iterator[Row]:
    for rank, before in ((1, SEQUENCE), (2, image), (3, VOLUME)):
        for kind in ("AveragePooling", "MaxPooling"):
            make = functools.partial(getattr(L, f"{kind}{rank}D"), 2)
            if rank == 3:  # TensorFlow pools no volumes in float64
                yield row(functools.partial(make, dtype="float32"), before, single=True)
            else:
                yield row(make, before)
        for kind in ("GlobalAveragePooling", "GlobalMaxPooling"):
            yield row(getattr(L, f"{kind}{rank}D"), before)
    for name in ("AdaptiveAveragePooling", "AdaptiveMaxPooling"):
        for rank, before in ((1, SEQUENCE), (2, image), (3, VOLUME)):
            if kind := getattr(L, f"{name}{rank}D", None):
                yield row(functools.partial(kind, 2), before)


def _normalization() -> Iterator[Row]:
    yield row(L.BatchNormalization, image, by_part=True)
    yield row(
        lambda: L.BatchNormalization(synchronized=True),
        image,
        name="BatchNormalization, synchronized",
    )
    yield row(L.LayerNormalization, image)
    yield row(lambda: L.GroupNormalization(3), image)
    yield row(L.RMSNormalization, vector)
    yield row(L.UnitNormalization, vector)
    yield row(lambda: L.SpectralNormalization(L.Conv2D(3, 2)), image)
    yield row(
        lambda: L.SpectralNormalization(L.Dense(5)), vector, name="SpectralNormalization of Dense"
    )
    yield row(lambda: L.Normalization(mean=0.3, variance=2.0), vector)
    yield row(_adapted, vector, name="Normalization, adapted")


def _adapted() -> Any:
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(0).normal(size=(20, 6)))
    return layer


def _attention() -> Iterator[Row]:
    def twice(layer: Any, hidden: Any) -> Any:
        return layer([hidden, L.Dense(4)(hidden)])

    def query(layer: Any, hidden: Any) -> Any:
        return layer(hidden, L.Dense(4)(hidden))

    yield row(L.Attention, SEQUENCE, call=twice)
    yield row(
        lambda: L.Attention(use_scale=True, dropout=0.3),
        SEQUENCE,
        name="Attention, dropout",
        call=twice,
        draws="own",
    )
    yield row(L.AdditiveAttention, SEQUENCE, call=twice)
    yield row(lambda: L.MultiHeadAttention(2, 3), SEQUENCE, call=query)
    yield row(
        lambda: L.MultiHeadAttention(2, 3, dropout=0.3),
        SEQUENCE,
        name="MultiHeadAttention, dropout",
        call=query,
        draws="keyed",
    )
    yield row(lambda: L.GroupQueryAttention(3, 4, 2), SEQUENCE, call=query)


def _recurrent() -> Iterator[Row]:
    yield row(lambda: L.SimpleRNN(3), SEQUENCE)
    yield row(lambda: L.GRU(3, return_sequences=True), SEQUENCE)
    yield row(lambda: L.LSTM(3), SEQUENCE)
    yield row(lambda: L.LSTM(3, dropout=0.3), SEQUENCE, name="LSTM, dropout", draws="own")
    yield row(
        lambda: L.GRU(3, recurrent_dropout=0.3),
        SEQUENCE,
        name="GRU, recurrent_dropout",
        draws="own",
    )
    yield Row(name="LSTM, stateful", build=_stateful)
    yield row(lambda: L.LSTM(3, unroll=True), SEQUENCE, name="LSTM, unroll")
    for kind in (L.SimpleRNNCell, L.GRUCell, L.LSTMCell):
        yield row(
            lambda kind=kind: L.RNN(kind(3)),
            SEQUENCE,
            name=f"RNN of {kind.__name__}",
            covers=(kind,),
        )
    yield row(
        lambda: L.RNN(L.StackedRNNCells([L.LSTMCell(3), L.GRUCell(2)])),
        SEQUENCE,
        name="RNN of StackedRNNCells",
        covers=(L.StackedRNNCells,),
    )
    yield row(lambda: L.Bidirectional(L.GRU(3)), SEQUENCE)
    yield row(lambda: L.TimeDistributed(L.Dense(3)), SEQUENCE)
    yield row(lambda: L.ConvLSTM1D(2, 2), shaped(3, 4, 2))
    yield row(lambda: L.ConvLSTM2D(2, 2), VOLUME)
    yield row(lambda: L.ConvLSTM3D(2, 2), shaped(2, 2, 3, 3, 2))


def _stateful() -> keras.Model:
    inputs = keras.Input((32, 32, 3), batch_size=8)
    hidden = L.LSTM(3, stateful=True)(L.Reshape((8, 384))(inputs))
    return keras.Model(inputs, L.Dense(3)(hidden))


def _random() -> Iterator[Row]:
    yield row(lambda: L.Dropout(0.3), vector, draws="keyed")
    yield row(
        lambda: L.Dropout(0.3, noise_shape=(None, 1, 4)),
        SEQUENCE,
        name="Dropout, noise_shape",
        draws="keyed",
    )
    yield row(lambda: L.SpatialDropout1D(0.3), SEQUENCE, draws="keyed")
    yield row(lambda: L.SpatialDropout2D(0.3), image, draws="keyed")
    yield row(lambda: L.SpatialDropout3D(0.3), VOLUME, draws="keyed")
    yield row(lambda: L.AlphaDropout(0.3), vector, draws="keyed")
    yield row(lambda: L.GaussianDropout(0.3), vector, draws="keyed")
    yield row(lambda: L.GaussianNoise(0.3), vector, draws="keyed")


RANGE = {"value_range": (0.0, 1.0)}

IMAGES: dict[str, Callable[[], Any]] = {
    "AugMix": lambda: L.AugMix(**RANGE),
    "CutMix": L.CutMix,
    "MixUp": L.MixUp,
    "RandAugment": lambda: L.RandAugment(**RANGE),
    "RandomBrightness": lambda: L.RandomBrightness(0.3, **RANGE),
    "RandomColorDegeneration": lambda: L.RandomColorDegeneration(0.5, **RANGE),
    "RandomColorJitter": lambda: L.RandomColorJitter(**RANGE, brightness_factor=0.3),
    "RandomContrast": lambda: L.RandomContrast(0.3, **RANGE),
    "RandomCrop": lambda: L.RandomCrop(3, 3),
    "RandomElasticTransform": lambda: L.RandomElasticTransform(**RANGE),
    "RandomErasing": lambda: L.RandomErasing(**RANGE),
    "RandomFlip": L.RandomFlip,
    "RandomGaussianBlur": lambda: L.RandomGaussianBlur(**RANGE),
    "RandomGrayscale": lambda: L.RandomGrayscale(0.5),
    "RandomHue": lambda: L.RandomHue(0.3, **RANGE),
    "RandomInvert": lambda: L.RandomInvert(0.5, **RANGE),
    "RandomPerspective": lambda: L.RandomPerspective(),
    "RandomPosterization": lambda: L.RandomPosterization(3, **RANGE),
    "RandomRotation": lambda: L.RandomRotation(0.2),
    "RandomSaturation": lambda: L.RandomSaturation(0.3, **RANGE),
    "RandomSharpness": lambda: L.RandomSharpness(0.5, **RANGE),
    "RandomShear": lambda: L.RandomShear(0.2, 0.2),
    "RandomTranslation": lambda: L.RandomTranslation(0.2, 0.2),
    "RandomZoom": lambda: L.RandomZoom(0.2),
}
NOT_IN_FLOAT64 = ("AugMix", "RandAugment", "RandomRotation")
"""Keras multiplies float32 and float64 in them."""


def _images() -> Iterator[Row]:
    for name, make in IMAGES.items():
        if hasattr(L, name):
            precision = "float32" if name in NOT_IN_FLOAT64 else "float64"
            # Some are in float32 inside.
            yield row(
                make,
                image,
                draws="own",
                unseeded=name == "AugMix",
                single=True,
                precision=precision,
            )
    if hasattr(L, "ContrastLimitedAdaptiveHistogramEqualization"):
        yield row(
            lambda: L.ContrastLimitedAdaptiveHistogramEqualization(**RANGE), image, single=True
        )
    yield row(lambda: L.AutoContrast(**RANGE), image)
    yield row(lambda: L.CenterCrop(3, 3), image)
    yield row(lambda: L.Equalization(**RANGE), image, call=_inside)
    yield row(lambda: L.Resizing(3, 3), image)
    yield row(lambda: L.Solarization(**RANGE), image)
    yield row(lambda: L.Pipeline([L.Rescaling(2.0), L.RandomFlip()]), image, draws="own")


def _tables() -> Iterator[Row]:
    yield row(lambda: L.CategoryEncoding(5, output_mode="multi_hot"), tokens)
    yield row(lambda: L.Discretization(bin_boundaries=[-0.5, 0.0, 0.5]), vector, after=floats)
    yield row(lambda: L.Hashing(7), tokens, after=floats)
    yield row(
        lambda: L.HashedCrossing(7),
        tokens,
        call=lambda layer, x: layer((x[:, :1], x[:, 1:2])),
        after=floats,
    )
    yield row(lambda: L.IntegerLookup(vocabulary=[0, 1, 2]), tokens, after=floats)
    yield row(lambda: L.StringLookup(vocabulary=VOCABULARY), words, after=floats)
    yield row(
        lambda: L.TextVectorization(vocabulary=VOCABULARY, output_mode="multi_hot"),
        words,
        call=lambda layer, x: layer(
            L.Lambda(lambda y: tf.strings.reduce_join(y, -1, separator=" "), output_shape=())(x)
        ),
    )


def _others() -> Iterator[Row]:
    wave = shaped(64)
    waves = shaped(64, 1)
    yield row(
        lambda: L.STFTSpectrogram(frame_length=16, frame_step=8, fft_length=16, expand_dims=False),
        waves,
    )
    yield row(
        # Keras subtracts float32 from float64 where it makes decibels.
        lambda: L.MelSpectrogram(
            fft_length=16,
            sequence_stride=8,
            sampling_rate=64,
            num_mel_bins=4,
            max_freq=32,
            power_to_db=False,
        ),
        wave,
    )
    if hasattr(L, "ReversibleEmbedding"):
        yield row(
            lambda: L.ReversibleEmbedding(5, 4),
            tokens,
            call=lambda layer, x: layer(layer(x), reverse=True),
        )
    yield row(_Doubled, vector, name="Layer of one's own", covers=(L.Layer,))
    yield row(lambda: _Wrapped(L.Dense(5)), vector, name="Wrapper", covers=(L.Wrapper,))
    yield row(lambda: L.TFSMLayer(_saved_model(), call_endpoint="serve"), vector, name="TFSMLayer")
    yield row(lambda: L.MaxNumBoundingBoxes(3), image)
    yield row(
        lambda: L.JaxLayer(lambda params, x: x, lambda rng, x: {}),
        vector,
        name="JaxLayer",
        needs="jax",
        covers=(L.JaxLayer,),
    )
    yield row(
        lambda: L.FlaxLayer(None), vector, name="FlaxLayer", needs="flax", covers=(L.FlaxLayer,)
    )
    yield row(
        lambda: L.TorchModuleWrapper(None),
        vector,
        name="TorchModuleWrapper",
        needs="torch",
        covers=(L.TorchModuleWrapper,),
    )


def _inside(layer: Any, hidden: Any) -> Any:
    """In a layer of one's own: Keras cannot make the symbolic graph of some of its layers."""
    return _Wrapped(layer)(hidden)


class _Doubled(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return 2 * inputs


class _Wrapped(keras.layers.Wrapper):
    def call(self, inputs: Any) -> Any:
        return self.layer(inputs) + 1


@functools.lru_cache(maxsize=1)
def _saved_model() -> str:
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([6, 6], tf.float64))
    module.serve = tf.function(
        lambda x: tf.cast(x, tf.float64) @ module.weight,
        input_signature=[tf.TensorSpec([None, 6], tf.float64)],
    )
    folder = tempfile.mkdtemp()
    tf.saved_model.save(module, folder, signatures=module.serve)
    return folder
