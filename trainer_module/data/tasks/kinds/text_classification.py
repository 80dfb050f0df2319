"""One of several classes from a text; without arguments, the sample of generated reviews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks.checks import ClassWeights
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.data.tasks.texts import sample
from stagecraft.trainer_module.data.tasks.texts.tokens import Texts, Tokens, TokensTask, no_preset

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Batch, Nest


_INPUTS = ("token_ids", "padding_mask", "segment_ids")
"""Names of the inputs of KerasHub's models, which are features after Transform."""


class TextClassification(TokensTask, Classification):
    """Softmax cross entropy; the tokenizer of a preset of KerasHub is a part of Transform's graph.

    The model's function is called with ``inputs``, names of int32 inputs ``[batch, length]``;
    ``length``; ``vocabulary_size``; and ``outputs``, the number of classes.
    """

    name = "text_classification"
    description = "one of several classes from a text, by a tokenizer of KerasHub"
    train_defaults: Mapping[str, Any] = MappingProxyType(
        {
            "model": "keras_hub:TextClassifier",
            "epochs": 3.0,
            "batch_size": 32,
            "eval_batch_size": 64,
            "optimizer": "adamw",
            "learning_rate": 5e-5,
            "schedule": "one_cycle",
            "clip_norm": 1.0,
        }
    )

    def __init__(
        self,
        text: str | Sequence[str] = "",
        label: str = "",
        preset: str | None = None,
        length: int | None = None,
        download: bool = False,
        weight: str | None = None,
        num_classes: int | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        class_weights: ClassWeights | None = None,
    ):
        """Names the columns; see :class:`Classification` for the label.

        Args:
            text: raw feature with the text; or several, which the preset joins.
            preset: folder of a preset of KerasHub with a tokenizer; with ``download``, its name.
            length: tokens of an example: a longer text is cut, a shorter one padded; None: 128,
                and 32 of the sample.
            download: whether KerasHub may download the preset.

        Raises:
            SettingError: an argument is invalid, or texts have no preset.
        """
        tokenizer = None
        if not text and preset is None:
            if label_vocabulary is not None:
                problem = "has no effect without task.args.text"
                raise SettingError("task.args.label_vocabulary", label_vocabulary, problem, "text")
            text, label, label_vocabulary = "text", label or "label", sample.LABELS
            length = 32 if length is None else length
            self.schema_file, tokenizer = names.schema_file("reviews"), sample.bert_tokenizer
        elif preset is None:
            raise no_preset()
        texts = (text,) if isinstance(text, str) else tuple(text)
        if not texts or not all(texts) or len({*texts}) < len(texts):
            problem = "is not a column, or several different ones"
            raise SettingError("task.args.text", text, problem, "the name of a column")
        for setting, column in (("label", label), ("weight", weight)):
            if column in _INPUTS:
                problem = "is the name of an input of the model"
                raise SettingError(f"task.args.{setting}", column, problem, "another column")
        self.preset, self.preset_download = preset, download
        length = 128 if length is None else length
        self._tokens = Tokens("TextClassifierPreprocessor", length, preset, download, tokenizer)
        super().__init__(
            {texts[0]: Texts(texts, self._tokens)},
            label,
            weight,
            num_classes,
            label_vocabulary,
            class_weights,
        )

    def setting_of(self, feature: str) -> tuple[str, object]:
        """``task.args.text``, or the label's setting."""
        if feature in self._sources:
            return "task.args.text", feature
        return super().setting_of(feature)

    @property
    def sample_arguments(self) -> ModelArguments:  # type: ignore[override]
        """``inputs``, ``length``, ``vocabulary_size`` and ``outputs``; imports KerasHub."""
        return {
            "inputs": self._tokens.inputs,
            "length": self._tokens.length,
            "vocabulary_size": self._tokens.vocabulary_size,
            "outputs": self._arguments["outputs"],
        }

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """See :attr:`sample_arguments`."""
        super().model_arguments(schema_path)
        return self.sample_arguments

    @property
    def features(self) -> Sequence[str]:
        """The inputs, the label and the weight."""
        return (*self._tokens.inputs, *super().features)

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Tokens, the label, and the product of both weights."""
        return super().batch(features, weights)._replace(inputs=self._inputs_of(features))

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest]:
        """Random tokens and labels."""
        return self._tokens.draw(count, draw), self.draw_labels(count, draw)


TEXT_CLASSIFICATION = TextClassification()
