"""Language models: the next token of a text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks import checks, metric, softmax
from stagecraft.trainer_module.data.tasks.constant import Frequencies
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


_PROMPTS, _TEMPERATURE = 4, 0.5
"""Of the samples in the report."""


class LanguageModel(Task):
    """Softmax cross entropy of each next token; padding does not count."""

    name = "language_model"
    description = "text: the next token, a character or a word"
    monitor = "perplexity"
    preprocessing_fn = "stagecraft.trainer_module.data.tasks.preprocessing.tokens.preprocessing_fn"
    schema_file: str | None = names.schema_file("text")
    example_gen: str | None = "stagecraft.components.example_gen.kinds.text.TextExampleGen"
    schema_features: Sequence[str] = (names.TEXT, names.ID)
    features: Sequence[str] = (names.TOKENS, names.ID)
    served_features: Sequence[str] = (names.TEXT,)
    ignored = 0
    """The target of padding."""

    def __init__(
        self,
        length: int = 64,
        vocabulary_size: int = 64,
        unit: str = "characters",
        new_tokens: int = 64,
    ):
        """Sizes of the model and of its data.

        Args:
            length: tokens that the model sees.
            vocabulary_size: ids of tokens; two of them are for padding and for rare tokens.
            unit: what a token is: ``characters`` or ``words``.
            new_tokens: tokens with which the exported model continues a prompt.

        Raises:
            SettingError: an argument is out of range.
        """
        for setting, value, least in (
            ("length", length, 1),
            ("vocabulary_size", vocabulary_size, 3),
            ("new_tokens", new_tokens, 1),
        ):
            checks.whole(f"task.args.{setting}", value, least)
        if unit not in names.SEPARATORS:
            raise SettingError("task.args.unit", unit, "is unknown", " or ".join(names.SEPARATORS))
        self._length, self._size = length, vocabulary_size
        self._unit, self._new_tokens = unit, new_tokens
        self.sample_arguments = self.model_arguments("")
        self.example_gen_args = {"window": length + 1, "unit": unit}

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``length`` and ``vocabulary_size``."""
        return {"length": self._length, "vocabulary_size": self._size}

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """``vocabulary_size``, ``window`` and ``unit``."""
        return {**self.example_gen_args, "vocabulary_size": self._size}

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The tokens."""
        return Spec((arguments["length"],), "int64")

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, length, vocabulary_size]``."""
        shape = (arguments["length"], arguments["vocabulary_size"])
        softmax.check_logits(name, outputs, shape, "position and token")

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits`` of each next token, ``[batch, length, vocabulary_size]``."""
        import tensorflow as tf

        return {"logits": tf.cast(outputs, tf.float32)}

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """The window without its last token, and without its first one."""
        from stagecraft.trainer_module.data.batch import Batch

        tokens = features[names.TOKENS]
        return Batch(tokens[:, :-1], tokens[:, 1:], weights)

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The mean over the tokens, in nats, with ``train.label_smoothing``."""
        found = softmax.cross_entropy(outputs, self._ids(targets), dtype, train)
        return self.per_example(found, targets)

    def per_example(self, values: Any, targets: Nest) -> Any:
        """The mean over the tokens, of values ``[batch, length]``."""
        import tensorflow as tf

        total, count = self._over_tokens(values, targets)
        return total / tf.maximum(count, 1)

    def _over_tokens(self, values: Any, targets: Any) -> tuple[Any, Any]:
        """The sum of values ``[batch, length]`` over the tokens, and their number: ``[batch]``."""
        import tensorflow as tf

        is_token = tf.cast(self._is_token(targets), values.dtype)
        return tf.reduce_sum(values * is_token, axis=1), tf.reduce_sum(is_token, axis=1)

    def _is_token(self, targets: Any) -> Any:
        return targets != self.ignored

    def _ids(self, targets: Any) -> Any:
        """Targets that are ids, also of padding."""
        import tensorflow as tf

        return targets if self.ignored >= 0 else tf.maximum(targets, 0)

    def _nats(self, outputs: Any, targets: Any, dtype: Any) -> tuple[Any, Any]:
        found = softmax.cross_entropy(outputs, self._ids(targets), dtype)
        return self._over_tokens(found, targets)

    def _correct(self, outputs: Any, targets: Any, dtype: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        found = tf.cast(softmax.is_correct(outputs, targets), dtype)
        return self._over_tokens(found, targets)

    def metrics(self) -> Sequence[metric.Metric]:
        """``accuracy``, the share of tokens with the largest logit, and ``perplexity``."""
        return (
            metric.Ratio("accuracy", self._correct),
            metric.Ratio("perplexity", self._nats, math.exp, higher_is_better=False),
        )

    def constant(self) -> Frequencies:
        """The frequencies of the tokens."""
        return Frequencies(self._size, "the frequencies of the tokens", self._is_token)

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``continue_text``: continues ``prompts`` by a fixed number of tokens.

        ``temperature`` 0 takes the likeliest token; otherwise ``seed`` draws from the softmax of
        the logits by the temperature.
        """
        import tensorflow as tf

        from stagecraft.trainer_module.data.tasks.preprocessing import tokens

        separator = names.SEPARATORS[self._unit]
        known = served.vocabulary(names.TOKENS)
        vocabulary = tf.constant([b"", b"", *known])
        ids = tf.range(self._size)
        usable = (ids >= tokens.FIRST) & (ids < tokens.FIRST + len(known))

        def chosen(logits: Any, temperature: Any, seed: Any) -> Any:
            """One id for each row of logits ``[batch, vocabulary_size]``: int64 ``[batch]``."""
            logits = tf.where(usable, tf.cast(logits, tf.float32), -math.inf)
            drawn = tf.random.stateless_categorical(
                logits / tf.maximum(temperature, 1e-6), 1, seed
            )[:, 0]
            return tf.where(temperature > 0, drawn, tf.argmax(logits, axis=-1))

        def continue_text(prompts: Any, temperature: Any, seed: Any) -> Any:
            last = tokens.split(prompts, self._unit)[:, -self._length :]
            text = tf.strings.reduce_join(last, axis=-1, separator=separator)
            raw = tf.reshape(text, [-1, *served.raw_spec[names.TEXT].shape])
            window = served.transform({names.TEXT: raw})[names.TOKENS][:, :-1]
            filled = tf.math.count_nonzero(window, axis=1)

            def step(number: Any, window: Any, filled: Any, made: Any) -> Any:
                place = tf.maximum(filled - 1, 0)  # an empty prompt is continued after padding
                logits = tf.gather(served.call(window), place, batch_dims=1)
                new = chosen(logits, temperature, tf.stack([seed, number]))
                is_full = filled == self._length
                window = tf.where(is_full[:, tf.newaxis], tf.roll(window, -1, 1), window)
                filled = tf.where(is_full, filled - 1, filled)
                here = tf.one_hot(filled, self._length, on_value=True, off_value=False)
                window = tf.where(here, new[:, tf.newaxis], window)
                return number + 1, window, filled + 1, tf.concat([made, new[:, tf.newaxis]], 1)

            start = (tf.constant(0, tf.int64), window, filled, window[:, :0])
            shapes = ((), window.shape, filled.shape, (None, None))
            *_, made = tf.while_loop(
                lambda number, *_: number < self._new_tokens,
                step,
                start,
                shape_invariants=tuple(tf.TensorShape(shape) for shape in shapes),
            )
            words = tf.gather(vocabulary, made)
            return {"continuations": tf.strings.reduce_join(words, axis=-1, separator=separator)}

        specs = {
            "prompts": tf.TensorSpec([None], tf.string, name="prompts"),
            "temperature": tf.TensorSpec([], tf.float32, name="temperature"),
            "seed": tf.TensorSpec([], tf.int64, name="seed"),
        }
        return {"continue_text": (continue_text, specs)}

    def samples(self, served: Served) -> Mapping[str, str]:
        """How the model continues the most frequent tokens."""
        import tensorflow as tf

        known = (each for each in served.vocabulary(names.TOKENS) if each.strip())
        prompts = list(itertools.islice(known, _PROMPTS))
        if not prompts:
            return {}
        function, specs = self.plain_signatures(served)["continue_text"]
        continue_text = tf.function(function, autograph=False).get_concrete_function(**specs)
        found = continue_text(
            prompts=tf.constant(prompts),
            temperature=tf.constant(_TEMPERATURE),
            seed=tf.constant(0, tf.int64),
        )
        texts = zip(prompts, found["continuations"].numpy(), strict=True)
        return {prompt.decode(): text.decode() for prompt, text in texts}


LANGUAGE_MODEL = LanguageModel()
