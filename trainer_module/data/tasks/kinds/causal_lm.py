"""Language models of KerasHub: the next token of each text of a table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.kinds.language_model import LanguageModel
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served
from stagecraft.trainer_module.data.tasks.texts import sample
from stagecraft.trainer_module.data.tasks.texts.tokens import (
    Tokens,
    TokensTask,
    no_preset,
    of_feature,
)

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Batch, Nest

_TARGETS = "targets"
_PROMPTS, _TEMPERATURE = 4, 0.7
"""Of the samples in the report."""


class CausalLM(TokensTask, LanguageModel):
    """Softmax cross entropy of each next token, by the tokenizer of a preset of KerasHub.

    The model's function is called with ``inputs``, names of int32 inputs ``[batch, length]``;
    ``length``; and ``vocabulary_size``. It returns logits ``[batch, length, vocabulary_size]`` or
    more: a model may have more ids than its tokenizer.
    """

    name = "causal_lm"
    description = "text: the next token, by a tokenizer of KerasHub"
    preprocessing_fn = "stagecraft.trainer_module.data.tasks.tables.preprocessing.preprocessing_fn"
    schema_file = None
    example_gen = None
    needs_schema = False
    is_table = True
    first_signature = "continue_text"
    evaluates_singly = True
    ignored = -1
    train_defaults: Mapping[str, Any] = MappingProxyType(
        {
            "model": "keras_hub:CausalLM",
            "epochs": 3.0,
            "batch_size": 16,
            "eval_batch_size": 16,
            "optimizer": "adamw",
            "learning_rate": 5e-5,
            "schedule": "one_cycle",
            "clip_norm": 1.0,
        }
    )

    def __init__(
        self,
        text: str = "",
        preset: str | None = None,
        length: int = 128,
        new_tokens: int = 32,
        download: bool = False,
    ):
        """Names the column.

        Args:
            text: raw feature with the text.
            preset: folder of a preset of KerasHub with a tokenizer; with ``download``, its name.
            length: tokens that the model sees: a longer text is cut, a shorter one padded.
            new_tokens: the most tokens with which the exported model continues a prompt.
            download: whether KerasHub may download the preset.

        Raises:
            SettingError: an argument is invalid, or texts have no preset.
        """
        tokenizer = None
        if not text and preset is None:
            text, self.schema_file = "text", names.schema_file("reviews")
            tokenizer = sample.gpt2_tokenizer
        elif preset is None:
            raise no_preset()
        if not text or not isinstance(text, str):
            raise SettingError("task.args.text", text, "is no column", "the name of a column")
        checks.whole("task.args.new_tokens", new_tokens, 1)
        if new_tokens >= length:
            problem = f"leave no place for a prompt in task.args.length: {length}"
            raise SettingError("task.args.new_tokens", new_tokens, problem, str(length // 2))
        self._text, self._length, self._new_tokens = text, length, new_tokens
        self.preset, self.preset_download = preset, download
        self._tokens = Tokens("CausalLMPreprocessor", length, preset, download, tokenizer)
        self.schema_features = self.served_features = (text,)

    def setting_of(self, feature: str) -> tuple[str, object]:
        """The name of the text."""
        return "task.args.text", self._text

    @property
    def code(self) -> tuple[str, ...]:
        """The task's module, and that of the tokens."""
        return (type(self).__module__, Tokens.__module__)

    @property
    def _size(self) -> int:  # type: ignore[override]
        return self._tokens.vocabulary_size

    @property
    def sample_arguments(self) -> ModelArguments:  # type: ignore[override]
        """``inputs``, ``length`` and ``vocabulary_size``."""
        return self.model_arguments("")

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``inputs``, ``length`` and ``vocabulary_size``."""
        return {
            "inputs": self._tokens.inputs,
            "length": self._length,
            "vocabulary_size": self._size,
        }

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """Nothing but the task."""
        return {}

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest]:
        """Random tokens."""
        inputs = self._tokens.draw(count, draw)
        return inputs, self._tokens.draw(count, draw)["token_ids"].astype("int64")

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, length, vocabulary_size]`` or more."""
        shape = getattr(outputs, "shape", None)
        shown = type(outputs).__name__ if shape is None else tuple(shape)
        length, size = arguments["length"], arguments["vocabulary_size"]
        if shape is None or tuple(shape[:-1]) != (3, length) or shape[-1] < size:
            raise UserError(
                f"train.model: {name} returns {shown} for a batch of 3; expected [batch, {length}, "
                f"{size}] or more logits, one for each position and token of the tokenizer",
                setting="train.model",
                value=name,
            )

    @property
    def features(self) -> Sequence[str]:  # type: ignore[override]
        """The inputs and the targets."""
        return (*self._tokens.inputs, _TARGETS)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The transformed features, int64 ``[batch, length]``; padding has no target, but -1.

        Raises:
            UserError: the schema lacks the text, or it is a number.
        """
        import tensorflow as tf

        names.require(
            "preprocessing_fn: the schema of Transform",
            inputs,
            self.schema_features,
            "add it to the schema, or set task.args.text to another column",
        )
        text = of_feature(self._text, inputs[self._text])
        made, targets, counts = self._tokens.tracked("tokens")(text)
        found = {**made, _TARGETS: tf.where(tf.cast(counts, tf.bool), targets, self.ignored)}
        return {
            name: tf.ensure_shape(tf.cast(value, tf.int64), [None, self._length])
            for name, value in found.items()
        }

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Tokens and masks, and the next tokens."""
        from stagecraft.trainer_module.data.batch import Batch

        return Batch(self._inputs_of(features), features.get(_TARGETS), weights)

    def resources(self) -> Sequence[Any]:
        """The tokenizer."""
        return [self._tokens.layer]

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``continue_text``: continues ``prompts`` until the end token, or by ``new_tokens``.

        The model sees the last ``length - new_tokens`` tokens of a prompt; a start token is one of
        them. Without a start token, an empty prompt begins with the end token, or with padding. The
        model keeps the keys and values of the tokens before, as ``generate()`` does.
        ``temperature`` 0 takes the likeliest token; otherwise ``seed`` draws from the softmax of
        the logits by the temperature.
        """
        import tensorflow as tf

        layer = self._tokens.layer
        if not layer.built:
            layer.build(None)
        tokenizer = layer.tokenizer
        ends = [
            getattr(tokenizer, name)
            for name in ("end_token_id", "end_token2_id")
            if getattr(tokenizer, name, None) is not None
        ]

        starts = layer.packer.start_value or ()
        first = [*ends, getattr(tokenizer, "pad_token_id", None) or 0][0]
        kept = self._length - self._new_tokens - len(starts)

        def continue_text(prompts: Any, temperature: Any, seed: Any) -> Any:
            ids = tokenizer(prompts)
            ids = ids[:, -kept:] if kept else ids[:, :0]
            if not starts:
                is_empty = tf.cast(ids.row_lengths() == 0, ids.row_splits.dtype)
                firsts = tf.repeat(tf.constant(first, ids.dtype), tf.reduce_sum(is_empty))
                ids = tf.concat([tf.RaggedTensor.from_row_lengths(firsts, is_empty), ids], axis=1)
            window, filled = layer.packer(ids, sequence_length=self._length, add_end_value=False)
            filled = tf.cast(filled, tf.bool)
            draw = _sampler(self._size, temperature, seed)
            step = functools.partial(_steps, served, window, filled, draw, ends)
            made, known = step()
            is_new = known & ~filled
            for end in ends:
                is_new &= made != end
            new = tf.ragged.boolean_mask(made, is_new)[:, : self._new_tokens]
            return {"continuations": tokenizer.detokenize(new)}

        specs = {
            "prompts": tf.TensorSpec([None], tf.string, name="prompts"),
            "temperature": tf.TensorSpec([], tf.float32, name="temperature"),
            "seed": tf.TensorSpec([], tf.int64, name="seed"),
        }
        return {"continue_text": (continue_text, specs)}

    def samples(self, served: Served) -> Mapping[str, str]:
        """Texts that the model begins by itself."""
        import tensorflow as tf

        function, specs = self.plain_signatures(served)["continue_text"]
        continue_text = tf.function(function, autograph=False).get_concrete_function(**specs)
        found = {}
        for seed in range(_PROMPTS):
            made = continue_text(
                prompts=tf.constant([""]),
                temperature=tf.constant(_TEMPERATURE),
                seed=tf.constant(seed, tf.int64),
            )
            text = made["continuations"].numpy()[0].decode(errors="replace")
            found[f"(an empty prompt, seed {seed})"] = text
        return found


def _steps(
    served: Served, window: Any, filled: Any, sampler: Any, ends: Sequence[int]
) -> tuple[Any, Any]:
    """Tokens ``[batch, length]`` after a generation, and which of them are given or made."""
    import tensorflow as tf

    stops = ends or None
    if hasattr(served.model, "generate_step"):
        served.model.sampler = sampler
        made = served.model.generate_step(
            {"token_ids": window, "padding_mask": filled}, stop_token_ids=stops
        )
        return made["token_ids"], tf.cast(made["padding_mask"], tf.bool)

    def logits(prompt: Any, cache: Any, index: Any) -> Any:
        """Without a cache: of all tokens again."""
        ones = tf.ones_like(prompt)
        found = served.call({"token_ids": prompt, "padding_mask": ones})
        return found[:, index - 1], None, cache

    start = tf.reduce_min(tf.reduce_sum(tf.cast(filled, tf.int32), axis=1))
    made = sampler(
        next=logits, prompt=window, cache=(), index=start, mask=filled, stop_token_ids=stops
    )
    ended = [tf.cast((made == end) & ~filled, tf.int32) for end in ends]
    after = sum((tf.cumsum(each, axis=1, exclusive=True) for each in ended), tf.zeros_like(made))
    return made, after == 0


def _sampler(size: int, temperature: Any, seed: Any) -> Any:
    """A sampler of KerasHub without a state, which a served model would keep between requests."""
    import keras_hub
    import tensorflow as tf

    class Drawn(keras_hub.samplers.Sampler):
        """Draws the token at a place by the seed and the place."""

        def __call__(self, next: Any, *args: Any, **kwargs: Any) -> Any:
            def noted(prompt: Any, cache: Any, index: Any) -> Any:
                self._place = index
                return next(prompt, cache, index)

            return super().__call__(noted, *args, **kwargs)

        def compute_probabilities(self, logits: Any) -> Any:
            """The logits of the tokenizer's ids: they are what is drawn from."""
            return tf.cast(logits[:, :size], tf.float32)

        def get_next_token(self, probabilities: Any) -> Any:
            """One id for each row."""
            place = tf.stack([seed, tf.cast(self._place, tf.int64)])
            scaled = probabilities / tf.maximum(temperature, 1e-6)
            drawn = tf.random.stateless_categorical(scaled, 1, place)[:, 0]
            return tf.where(temperature > 0, drawn, tf.argmax(probabilities, axis=-1))

    return Drawn()


CAUSAL_LM = CausalLM()
