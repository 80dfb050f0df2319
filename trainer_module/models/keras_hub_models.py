"""Builds models of KerasHub: ``train.model: keras_hub:CLASS``, with ``train.model_args``.

A task class (``BertTextClassifier``), its base class (``TextClassifier``), or a backbone, which
gets the head of KerasHub's class for the task. A preset or a configuration gives the sizes. Texts
and pictures are preprocessed by the Transform graph, so that the model has no preprocessor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras
from keras.src.backend.common import stateless_scope

from stagecraft.common.errors import SettingError, UserError, cleaned
from stagecraft.trainer_module import hub
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Task

SETTING = "train.model_args"
_BACKBONE, _PRESET = f"{SETTING}.backbone", f"{SETTING}.preset"

LORA = ("lora_rank", "lora_targets")
"""Arguments that add adapters to the weights."""

_OWN = ("preset", "download", "load_weights", "backbone", *LORA)
_HEADS = {
    "num_classes": ("TextClassifier", "ImageClassifier"),
    "outputs": ("TextClassifier",),
    "length": ("CausalLM",),
}
"""Argument of the task -> base classes of KerasHub that make a model for it of a backbone."""


def build(name: str, arguments: ModelArguments, given: Mapping[str, Any], task: Task) -> Any:
    """A new model, without preprocessor, not compiled.

    Args:
        name: ``keras_hub:CLASS``.
        arguments: of the task: sizes of inputs and outputs.
        given: ``train.model_args``: arguments of the class, and ``preset`` (a folder, or with
            ``download`` a name) with ``load_weights``, or ``backbone``, a mapping of the backbone's
            arguments; ``lora_rank`` and ``lora_targets``, names of layers.
        task: its preset gives the sizes by default.

    Raises:
        SettingError: KerasHub is missing, has no such class, or does not take the arguments.
    """
    library = hub.library("train.model", name)
    hub.check_class(name)
    kind = getattr(library.models, hub.class_name(name) or "")
    own = {key: given[key] for key in _OWN if key in given}
    rest = {key: value for key, value in given.items() if key not in _OWN}
    if not issubclass(kind, (library.models.Task, library.models.Backbone)):
        raise SettingError("train.model", name, "is no model of KerasHub", "keras_hub:CLASS")
    _check_loading(own)
    folder, backbone = _backbone(library, name, kind, own, arguments, task)
    _check_length(backbone, arguments)
    head = _head(library, name, kind, type(backbone), arguments)
    if head is None:
        hub.check_arguments(SETTING, type(backbone), rest, hub.parameters(type(backbone)))
        model = backbone
    else:
        model = _task(head, backbone, folder, rest, arguments, own)
    if own.keys() & {*LORA}:
        _add_lora(model, own)
    return model


def _check_loading(own: Mapping[str, Any]) -> None:
    """Refuses ``download`` and ``load_weights`` that are no bool, or have no preset."""
    for name, needed in (("download", "preset"), ("load_weights", None)):
        setting, value = f"{SETTING}.{name}", own.get(name, False)
        if not isinstance(value, bool):
            raise SettingError(setting, value, "is neither true nor false", f"{setting}: true")
        if value and ("backbone" in own or (needed and needed not in own)):
            use = f"{_PRESET}: FOLDER, or train.initial_weights"
            raise SettingError(setting, value, f"has no effect without {_PRESET}", use)


def _check_length(backbone: Any, arguments: ModelArguments) -> None:
    """Refuses more tokens than the backbone has positions."""
    length, places = arguments.get("length"), getattr(backbone, "max_sequence_length", None)
    if length is not None and places is not None and length > places:
        problem = f"is more than max_sequence_length of the backbone: {places}"
        raise SettingError("task.args.length", length, problem, str(places))


def _backbone(
    library: Any,
    name: str,
    kind: Any,
    own: Mapping[str, Any],
    arguments: ModelArguments,
    task: Task,
) -> tuple[str | None, Any]:
    """The preset, if any, and the backbone in Keras's dtype policy."""
    config, value = own.get("backbone"), own.get("preset")
    if config is not None and value is not None:
        use = "one of them"
        raise SettingError(_BACKBONE, config, f"and {_PRESET}: {value} exclude each other", use)
    wanted = kind if issubclass(kind, library.models.Backbone) else kind.backbone_cls
    if config is not None:
        if wanted is None:
            raise SettingError(
                "train.model",
                name,
                f"is a base class, which needs a preset rather than {_BACKBONE}",
                f"a class such as keras_hub:{_example(library, kind)}",
            )
        return None, _configured(wanted, config, arguments)
    setting, download = _PRESET, own.get("download", False)
    if value is None:
        value, setting, download = task.preset, "task.args.preset", task.preset_download
    if value is None:
        raise SettingError(
            SETTING,
            {**own},
            f"have no sizes for {name}",
            f"preset: FOLDER, or keras_hub:{_example(library, kind)} with a backbone"
            if wanted is None
            else "preset: FOLDER, or backbone: {num_layers: 2, …}",
        )
    path = hub.preset(setting, value, download)
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, hub.CONFIG)):
        use = f"{_BACKBONE}: {{num_layers: 2, …}}"
        raise SettingError(setting, value, f"has no {hub.CONFIG} with the sizes of a model", use)
    # Variables without values cannot be loaded.
    loads = bool(own.get("load_weights")) and not stateless_scope.in_stateless_scope()
    found = hub.made(
        setting,
        value,
        lambda: hub.backbone(path, load_weights=loads, dtype=keras.config.dtype_policy().name),
    )
    if wanted is not None and not isinstance(found, wanted):
        raise SettingError(
            setting,
            value,
            f"is of {type(found).__name__}, which {name} does not take",
            f"a preset of {wanted.__name__}",
        )
    return path, found


def _example(library: Any, kind: type) -> str:
    """A class below a base class."""
    models = vars(library.models).values()
    below = sorted(
        each.__name__
        for each in models
        if isinstance(each, type) and issubclass(each, kind) and each is not kind
    )
    return below[0] if below else kind.__name__


def _configured(kind: Any, config: Any, arguments: ModelArguments) -> Any:
    """A backbone of a configuration; the task's sizes fill in what it does not say."""
    if not isinstance(config, Mapping):
        use = "{num_layers: 2, hidden_dim: 64, …}"
        raise SettingError(_BACKBONE, config, "is not a mapping of arguments", use)
    parameters = hub.parameters(kind)
    sizes = {
        "vocabulary_size": arguments.get("vocabulary_size"),
        "max_sequence_length": arguments.get("length"),
        "image_shape": arguments.get("input_shape"),
    }
    filled = {
        name: value
        for name, value in sizes.items()
        if value is not None and name in parameters and name not in config
    }
    hub.check_arguments(_BACKBONE, kind, {**filled, **config})
    return hub.made(_BACKBONE, dict(config), lambda: kind(**filled, **config))


def _head(
    library: Any, name: str, kind: Any, backbone: type, arguments: ModelArguments
) -> Any | None:
    """The class of the whole model; None: the backbone is the model."""
    if issubclass(kind, library.models.Task):
        if kind.backbone_cls is not None:
            return kind
        found = hub.subclass(kind, backbone)
        if found is None and kind is library.models.ImageClassifier:
            return kind  # it takes any backbone of pictures
        if found is None:
            problem = f"has no class for {backbone.__name__}"
            raise SettingError("train.model", name, problem, "a preset of another model")
        return found
    wanted = next((_HEADS[each] for each in _HEADS if each in arguments), ())
    for base in wanted:
        if found := hub.subclass(getattr(library.models, base), backbone):
            return found
    if "input_shape" in arguments:
        return library.models.ImageClassifier
    return None


def _task(
    kind: Any,
    backbone: Any,
    folder: str | None,
    given: Mapping[str, Any],
    arguments: ModelArguments,
    own: Mapping[str, Any],
) -> Any:
    """The backbone with its head."""
    classes = arguments.get("num_classes", arguments.get("outputs"))
    of_task = {}
    if "num_classes" in hub.parameters(kind) and classes is not None:
        of_task["num_classes"] = classes
    provided = ("backbone", "preprocessor", "compile", "name", *of_task)
    hub.check_arguments(SETTING, kind, given, provided)
    stored = hub.made(_PRESET, folder, lambda: hub.stored_task(kind, folder))
    model = hub.made(
        SETTING,
        dict(given),
        lambda: hub.with_head(kind, backbone, stored, {**given, **of_task}),
    )
    activation = getattr(model, "activation", None)
    if keras.activations.get(activation) is not keras.activations.linear:
        raise SettingError(
            f"{SETTING}.activation",
            getattr(activation, "__name__", activation),
            "ends the model, but the loss and the exported model apply the softmax to logits",
            f"{SETTING}.activation: linear",
        )
    same = stored.get("num_classes", classes) == classes
    loads = own.get("load_weights") and not stateless_scope.in_stateless_scope()
    if loads and folder and stored and same and (weights := hub.file(folder, hub.TASK_WEIGHTS)):
        hub.made(_PRESET, folder, lambda: model.load_task_weights(str(weights)))
    return model


def _add_lora(model: Any, own: Mapping[str, Any]) -> None:
    """Freezes the backbone, and adds trained low-rank updates to some of its kernels."""
    backbone = getattr(model, "backbone", model)
    rank, targets = own.get("lora_rank"), own.get("lora_targets")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        setting = f"{SETTING}.lora_rank"
        raise SettingError(setting, rank, "is not a whole number of 1 or more", f"{setting}: 8")
    layers = backbone._flatten_layers(include_self=False)
    names = {layer.name for layer in layers if hasattr(layer, "enable_lora")}
    setting, use = f"{SETTING}.lora_targets", f"some of {', '.join(sorted(names))}"
    if not isinstance(targets, (list, tuple, type(None))):
        raise SettingError(setting, targets, "is not a list", use)
    for target in targets or ():
        if not isinstance(target, str) or target not in names:
            raise SettingError(setting, target, f"names no layer of {backbone.name}", use)
    # By position: the name of the second argument differs between versions of KerasHub.
    hub.made(f"{SETTING}.lora_rank", rank, lambda: backbone.enable_lora(rank, targets))
    if not any(hub.is_adapter(weight.path) for weight in model.trainable_weights):
        use = f"{setting}: {use}"
        raise SettingError(f"{SETTING}.lora_rank", rank, "finds no layer to adapt", use)


def check(name: str, model: Any, arguments: ModelArguments, task: Task) -> None:
    """Checks inputs and outputs, by shapes alone: the model may be too large to run here.

    Raises:
        UserError: the model takes other inputs than those of the task, or the task refuses its
            outputs.
    """
    specs = task.input_specs(arguments)
    if isinstance(model.input, Mapping) or isinstance(specs, Mapping):
        wanted = sorted(model.input) if isinstance(model.input, Mapping) else ["one tensor"]
        found = sorted(specs) if isinstance(specs, Mapping) else ["one tensor"]
        if wanted != found:
            raise SettingError(
                "train.model",
                name,
                f"takes {', '.join(wanted)}, but the task {task.name} gives {', '.join(found)}",
                "a preset of the same family in task.args.preset, or another class",
            )
    given = keras.tree.map_structure(
        lambda spec: keras.KerasTensor((3, *spec.shape), spec.dtype), specs
    )
    try:
        outputs = model.compute_output_spec(given)
    except Exception as error:  # whatever a layer raises
        raise UserError(
            f"train.model: {name} does not accept the inputs of the task {task.name}: "
            f"{cleaned(str(error))}",
            setting="train.model",
            value=name,
        ) from error
    task.check_outputs(name, outputs, arguments)
