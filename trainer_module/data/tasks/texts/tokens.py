"""Tokens of texts by a preset of KerasHub, as its models take them. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import hub
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.tables.column import Column, dense, present
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Spec, Task
from stagecraft.trainer_module.data.tasks.texts import sample

_SETTING = "task.args.preset"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokenizer of a preset, and what its models take besides the tokens."""

    kind: str
    """KerasHub's base class, such as ``TextClassifierPreprocessor``."""

    length: int
    """Tokens of an example."""

    preset: str | None
    """A folder, or with ``download`` a name; None: the tokenizer of the sample."""

    download: bool
    sample: Callable[[Any], Any] | None
    """Makes the tokenizer of the sample, from the module ``keras_hub``; None: texts are given."""

    def __post_init__(self) -> None:
        checks.whole("task.args.length", self.length, 2)
        problem = "is neither true nor false"
        checks.of_type("task.args.download", self.download, bool, problem, "true")
        if self.preset is not None:
            checks.of_type(_SETTING, self.preset, str, "is not a path", "a folder")

    @property
    def files(self) -> Sequence[str]:
        """The files of the tokenizer; none of a preset that is downloaded, or of the sample.

        Raises:
            SettingError: there is no such folder, or it has no tokenizer.
        """
        if self.preset is None:
            return ()
        path = hub.preset(_SETTING, self.preset, self.download)
        if not os.path.isdir(path):
            return ()
        folder = pathlib.Path(path)
        names = ("*token*.json", "vocab*", "merges.txt", "*.model", "*.spm", "assets/**/*")
        found = {file for name in names for file in folder.glob(name) if file.is_file()}
        if not found:
            use = "a folder that save_to_preset of a tokenizer or a task wrote"
            raise SettingError(_SETTING, self.preset, "has no tokenizer", use)
        more = {folder / hub.CONFIG, folder / "preprocessor.json"}
        return sorted(map(str, found | {*filter(pathlib.Path.is_file, more)}))

    @property
    def layer(self) -> Any:
        """KerasHub's preprocessor.

        Raises:
            SettingError: KerasHub is missing, or cannot read the preset.
        """
        marks = tuple((name, os.stat(name).st_mtime_ns) for name in self.files)
        return _layer(self, marks)

    @property
    def inputs(self) -> Sequence[str]:
        """Names of the model's inputs, ``[length]`` each."""
        return _inputs(self, self.layer)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return int(self.layer.tokenizer.vocabulary_size())

    def tracked(self, name: str) -> Any:
        """The preprocessor, as an object of Transform's graph."""
        import tensorflow_transform as tft

        return tft.make_and_track_object(lambda: self.layer, name=name)

    def draw(self, count: int, draw: Any) -> dict[str, Any]:
        """Random inputs: any ids, and ones for all else."""
        import numpy as np

        shape = (count, self.length)
        found = {name: np.ones(shape, np.int32) for name in self.inputs}
        ids = draw.integers(0, self.vocabulary_size, shape).astype(np.int32)
        zeros = {name: np.zeros(shape, np.int32) for name in found if name == "segment_ids"}
        return found | zeros | {"token_ids": ids}


def no_preset() -> SettingError:
    """The refusal of texts without a preset."""
    use = "a folder that save_to_preset of KerasHub wrote"
    return SettingError(_SETTING, None, "is missing: texts need a tokenizer", use)


class TokensTask(Task):
    """Base of tasks whose model's inputs are tokens."""

    knows_arguments = True
    _tokens: Tokens

    @property
    def files(self) -> Sequence[str]:
        """The files of the tokenizer."""
        return self._tokens.files

    def sample(self) -> Iterable[Mapping[str, Any]] | None:
        """Reviews, if there are no arguments."""
        return sample.rows() if self._tokens.sample else None

    def input_specs(self, arguments: ModelArguments) -> dict[str, Spec]:
        """A dictionary: int32 ``[length]`` by name."""
        return {name: Spec((arguments["length"],), "int32") for name in arguments["inputs"]}

    def _inputs_of(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Tokens and masks as int32, as KerasHub declares them."""
        import tensorflow as tf

        return {name: tf.cast(features[name], tf.int32) for name in self._tokens.inputs}


@functools.lru_cache(maxsize=8)
def _layer(tokens: Tokens, _: Any) -> Any:
    needs = ("task", "a sample of texts") if tokens.preset is None else (_SETTING, tokens.preset)
    library = hub.library(*needs)
    import tensorflow as tf

    kind = getattr(library.models, tokens.kind)
    with tf.init_scope():  # tables belong to no graph
        if tokens.preset is None:
            assert tokens.sample is not None, "the constructor refuses it"
            return _of_tokenizer(tokens, kind, tokens.sample(library))
        path = hub.preset(_SETTING, tokens.preset, tokens.download)
        file = pathlib.Path(path, hub.TOKENIZER)
        if pathlib.Path(path, hub.CONFIG).is_file() or not file.is_file():
            call = functools.partial(kind.from_preset, path, sequence_length=tokens.length)
            return hub.made(_SETTING, tokens.preset, call)
        return hub.made(
            _SETTING, tokens.preset, lambda: _of_tokenizer(tokens, kind, _tokenizer(file))
        )


def _tokenizer(file: pathlib.Path) -> Any:
    """A tokenizer that was saved without a model."""
    import keras

    made = keras.saving.deserialize_keras_object(json.loads(file.read_text()))
    made.load_preset_assets(str(file.parent))
    return made


def _of_tokenizer(tokens: Tokens, kind: type, tokenizer: Any) -> Any:
    found = hub.subclass(kind, tokenizer.backbone_cls)
    if found is None:
        name = type(tokenizer).__name__
        problem = f"has a {name}, for which KerasHub has no {tokens.kind}"
        raise SettingError(_SETTING, tokens.preset, problem, "a preset of another model")
    return found(tokenizer, sequence_length=tokens.length)


@functools.lru_cache(maxsize=8)
def _inputs(tokens: Tokens, layer: Any) -> Sequence[str]:
    import tensorflow as tf

    spec = tf.TensorSpec([None], tf.string)
    with tf.init_scope():
        made = tf.function(lambda text: layer(text, y=None)).get_concrete_function(spec)
    found = made.structured_outputs
    return tuple(found[0] if isinstance(found, tuple) else found)


@dataclasses.dataclass(frozen=True)
class Texts(Column):
    """One text, or several that the preset joins; a missing one is empty."""

    needs_numbers: ClassVar[bool] = False

    columns: Sequence[str]
    tokens: Tokens

    def sources(self, name: str) -> Mapping[str, bool]:
        """The raw features."""
        return dict.fromkeys(self.columns, False)

    def inputs(self, name: str) -> Mapping[str, int | None]:
        """None that are known without KerasHub; see :attr:`Tokens.inputs`."""
        return {}

    def result(self, name: str, features: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's inputs, int64 ``[batch, length]``."""
        import tensorflow as tf

        texts = tuple(of_feature(each, features[each]) for each in self.columns)
        layer = self.tokens.tracked(name)
        made = layer(texts if len(texts) > 1 else texts[0], y=None)
        return {
            key: tf.ensure_shape(tf.cast(value, tf.int64), [None, self.tokens.length])
            for key, value in made.items()
        }

    def transform(self, name: str, raw: Any) -> Mapping[str, Any]:
        """See :meth:`result`."""
        raise TypeError("a column of texts may have several raw features; call result")


def of_feature(name: str, raw: Any) -> Any:
    """The texts of a raw feature, ``[batch]``; missing ones are empty.

    Raises:
        SettingError: the feature is a number.
    """
    import tensorflow as tf

    if raw.dtype != tf.string:
        raise SettingError("task.args.text", name, "is a column of numbers", "a column of texts")
    return tf.reshape(dense(present(name, raw), ""), [-1])
