"""KerasHub, which is optional: its classes by name, and its presets.

Imports KerasHub, and TensorFlow with it, inside functions only.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import inspect
import json
import os
import pathlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from stagecraft.common import lazy, signatures
from stagecraft.common.errors import SettingError, UserError, said

EXTRA = "hub"
"""Of this distribution, with KerasHub."""

_PACKAGE = "keras_hub"
_NAME = re.compile(r"keras_hub(?:\.models)?:(\w+)")
_NO_MODEL = re.compile(r"(Preprocessor|Tokenizer|Converter)$|^(Task|Backbone)$")

CONFIG, TOKENIZER, CONVERTER = "config.json", "tokenizer.json", "image_converter.json"
"""Files of a preset: the backbone's configuration, the tokenizer's, the image converter's."""

TASK_WEIGHTS = "task.weights.h5"
"""The file of a preset with the weights of the head."""


def class_name(model: str) -> str | None:
    """The class that ``keras_hub:CLASS`` names; None: the model is none of KerasHub's."""
    match = _NAME.fullmatch(model)
    return match[1] if match else None


def library(setting: str, value: object) -> Any:
    """The module ``keras_hub``.

    Args:
        setting: that needs it, with its value.

    Raises:
        SettingError: it is not installed, or cannot be imported.
    """
    try:
        import keras_hub
    except Exception as error:  # ImportError, or what its own imports raise
        raise SettingError(
            setting, value, f"needs KerasHub: {said(error)}", f"the command {lazy.install(EXTRA)}"
        ) from error
    return keras_hub


def check_class(model: str) -> None:
    """Refuses ``keras_hub:CLASS`` if KerasHub has no such model; imports no KerasHub.

    Raises:
        SettingError: as said.
    """
    name, known = class_name(model), _names(model)
    if name not in known:
        near = difflib.get_close_matches(name or "", known, n=1, cutoff=0.4)
        raise SettingError(
            "train.model",
            model,
            "is no model of KerasHub",
            f"{_PACKAGE}:{near[0] if near else 'TextClassifier'}",
        )


def _names(model: str) -> list[str]:
    """Public names of ``keras_hub.models`` that are models, or base classes of tasks."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SettingError(
            "train.model",
            model,
            "needs KerasHub, which is not installed",
            f"the command {lazy.install(EXTRA)}",
        )
    file = pathlib.Path(spec.submodule_search_locations[0], "models", "__init__.py")
    found = [
        alias.asname or alias.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return [name for name in found if not _NO_MODEL.search(name)]


def preset(setting: str, value: str, download: bool) -> str:
    """What KerasHub's ``from_preset`` takes: the path of a folder; or, to download, a name.

    Args:
        setting: that names the preset.

    Raises:
        SettingError: there is no such folder, and ``download`` is false; or the value is no text.
    """
    if not isinstance(value, str):
        raise SettingError(setting, value, "is not a path", "a folder that save_to_preset wrote")
    path = os.path.expanduser(value)
    if os.path.isdir(path):
        return path
    if download:
        return value
    above = setting.rpartition(".")[0]
    raise SettingError(
        setting,
        value,
        "is not the folder of a preset",
        f"a folder that save_to_preset wrote; or {above}.download: true, to download a preset of "
        "this name",
    )


def file(preset: str, name: str) -> pathlib.Path | None:
    """A file of a preset, which KerasHub downloads if need be; None: the preset has none."""
    if os.path.isdir(preset):
        local = pathlib.Path(preset, name)
        return local if local.is_file() else None
    from keras_hub.src.utils import preset_utils

    if not preset_utils.check_file_exists(preset, name):
        return None
    return pathlib.Path(preset_utils.get_file(preset, name))


def backbone(preset: str, *, load_weights: bool, dtype: str) -> Any:
    """The backbone of a preset in a dtype policy; a quantized one keeps its own.

    ``from_preset`` ignores ``dtype`` if the preset says which one it was saved in.
    """
    from keras_hub.src.utils import preset_utils

    loader = preset_utils.get_preset_loader(preset)
    config = loader.config.get("config", {})
    saved = config.get("dtype")
    policy = {"dtype": dtype}
    if isinstance(saved, Mapping) and saved["class_name"] != "DTypePolicy":
        policy = {}
    else:
        config.pop("dtype", None)
    return loader.load_backbone(loader.check_backbone_class(), load_weights, **policy)


def with_head(
    kind: type, backbone: Any, stored: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """A backbone with a head, without preprocessor, not compiled.

    Args:
        kind: class of KerasHub.
        stored: arguments of :func:`stored_task`, which ``given`` replaces.
    """
    own = {"backbone": backbone, "preprocessor": None, "compile": False}
    others = {*own, "name", "dtype"}
    kept = {name: stored[name] for name in parameters(kind) if name in stored.keys() - others}
    return kind(**{**kept, **given, **own})


def stored_task(kind: type, preset: str | None) -> dict[str, Any]:
    """The arguments that a preset has for a task class; empty: it is of another class, or none.

    Raises:
        UserError: the file is damaged.
    """
    path = None if preset is None else file(preset, "task.json")
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text())
        config: dict[str, Any] = found["config"] if found["class_name"] == kind.__name__ else {}
        return config
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is no task of KerasHub: {error}", file=str(path)) from None


@functools.cache
def _subclasses(kind: type, backbone: type) -> Sequence[type]:
    import keras_hub

    found = {
        each
        for each in vars(keras_hub.models).values()
        if inspect.isclass(each) and issubclass(each, kind)
    }
    fitting = [each for each in found if getattr(each, "backbone_cls", None) is backbone]
    return sorted(fitting, key=lambda each: each.__name__)


def subclass(kind: type, backbone: type) -> Any:
    """The class of KerasHub below ``kind`` for a class of backbones; None: there is none."""
    return next(iter(_subclasses(kind, backbone)), None)


def check_arguments(
    setting: str, kind: type, given: Mapping[str, Any], provided: Collection[str] = ()
) -> None:
    """Refuses arguments that a class does not take, and a lack of those that it needs.

    Args:
        setting: that has the arguments.
        provided: further arguments, by this program.

    Raises:
        SettingError: as said.
    """
    needed = parameters(kind)
    known = [name for name in needed if name not in provided]
    signatures.refuse_unknown(setting, given, known, kind.__name__)
    for name, is_needed in needed.items():
        if is_needed and name not in {*given, *provided}:
            raise SettingError(
                setting, dict(given), f"lack {name} of {kind.__name__}", f"{name}: VALUE"
            )


def parameters(kind: type) -> dict[str, bool]:
    """Arguments of a class of KerasHub, and whether each is needed.

    A class may pass on what it does not name, so that those of its base classes count.
    """
    found: dict[str, bool] = {}
    for each in kind.__mro__:
        if "__init__" not in vars(each) or not each.__module__.startswith(_PACKAGE):
            continue
        [_, *own] = inspect.signature(vars(each)["__init__"]).parameters.values()
        named = [one for one in own if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        first = not found
        found = {one.name: first and one.default is one.empty for one in named} | found
    return found


def is_adapter(path: str) -> bool:
    """Whether a variable belongs to an adapter (LoRA), which files of Keras do not have."""
    return path.rpartition("/")[2].startswith("lora_")


def made(setting: str, value: object, call: Callable[[], Any]) -> Any:
    """The result of a call into KerasHub.

    Raises:
        SettingError: the call fails.
    """
    try:
        return call()
    except UserError:
        raise
    except Exception as error:  # whatever KerasHub raises
        raise SettingError(setting, value, f"is refused by KerasHub: {said(error)}") from error


def converter_files(setting: str, value: str, download: bool) -> Sequence[str]:
    """The file of a preset's image converter; none if the preset is downloaded.

    Raises:
        SettingError: there is no such folder or file.
    """
    path = preset(setting, value, download)
    if not os.path.isdir(path):
        return ()
    file = os.path.join(path, CONVERTER)
    if not os.path.isfile(file):
        use = "a folder that save_to_preset of an image model with a preprocessor wrote"
        raise SettingError(setting, value, f"has no {CONVERTER}", use)
    return (file,)


def image_converter(value: str, download: bool) -> Any:
    """The image converter of a preset: KerasHub's layer from uint8 pictures to a model's inputs.

    Raises:
        SettingError: KerasHub is missing, or cannot read the preset.
    """
    setting = "task.args.preset"
    module = library(setting, value)
    import keras

    files = converter_files(setting, value, download)

    def call() -> Any:
        if files:
            return keras.saving.deserialize_keras_object(
                json.loads(pathlib.Path(*files).read_text())
            )
        return module.layers.ImageConverter.from_preset(value)

    return made(setting, value, call)
