import sys
from typing import Any

import keras
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.engines.engine import learning_rate
from stagecraft.trainer_module.optimization import slots
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

MINE = sys.modules[__name__]


@pytest.mark.parametrize(
    ("given", "name"),
    [("Adam", "adam"), ("RMSprop", "rmsprop"), ("SGD", "sgd"), ("AdamW", "adamw")],
)
def test_names_of_optimizers_in_any_case(given, name):
    assert TrainSettings(optimizer=given).optimizer == name


@pytest.mark.parametrize("name", sorted({*registries.OPTIMIZERS.names()} - {"muon", "parts"}))
def test_arguments_read_from_the_sources_are_those_of_the_class(name):
    entry = registries.OPTIMIZERS.get(name)
    optimizer = entry.make(TrainSettings(optimizer=name, weight_decay=0.25, learning_rate=0.5))
    assert type(optimizer).__name__ == entry.class_name
    assert (float(optimizer.learning_rate), optimizer.weight_decay) == (0.5, 0.25)
    known = signatures.arguments("keras.optimizers", entry.class_name)
    assert known.keys() - {"name"} <= optimizer.get_config().keys() | {"adam_weight_decay"} | {
        each for each in known if hasattr(optimizer, each)
    }


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"optimizer": "adams"}, "train.optimizer", "adam"),
    ({"optimizer": "loss_scale_optimizer"}, "train.optimizer", "parallel.precision"),
    ({"optimizer": "ScheduleFreeAdamW"}, "train.optimizer", "train.ema_decay"),
    ({"optimizer": "adam", "optimizer_args": {"beta1": 0.9}}, "train.optimizer_args", "beta_1"),
    ({"optimizer": "adam", "optimizer_args": {"zz": 0.9}}, "train.optimizer_args", "amsgrad"),
    ({"optimizer_args": {"momentum": 0.9}}, "train.optimizer_args", "train.momentum"),
    *(
        ({"optimizer": "adam", "optimizer_args": {name: 1}}, "train.optimizer_args", setting)
        for name, setting in {
            "learning_rate": "train.learning_rate",
            "weight_decay": "train.weight_decay",
            "clipnorm": "train.clip_norm",
            "clipvalue": "train.clip_value",
            "use_ema": "train.ema_decay",
            "gradient_accumulation_steps": "parallel.accumulate",
        }.items()
    ),
    ({"optimizer": "a.b:c", "optimizer_args": {"x": 1}}, "train.optimizer_args", ""),
    ({"optimizer_args": [1]}, "train.optimizer_args", ""),
    ({"schedule": "polynomial_decay"}, "train.schedule_args", "decay_steps"),
    ({"schedule_args": {"alpha": 1}}, "train.schedule_args", ""),
    (
        {"schedule": "reduce_on_plateau", "schedule_args": {"monitor": "loss"}},
        "train.schedule_args",
        "task",
    ),
    ({"frozen": "a["}, "train.frozen", r"a\["),
    ({"learning_rate_multipliers": {"a": -1}}, "train.learning_rate_multipliers", "0 or more"),
    ({"clip_norm": 1, "clip_value": 1}, "train.clip_value", "one"),
    ({"callbacks": "mine"}, "train.callbacks", ":"),
    ({"lookahead": 5, "ema_decay": 0.9}, "train.lookahead", "one"),
    ({"lookahead": 6, "steps": 5}, "train.lookahead", "5"),
    ({"freeze_after": {"a[": 0.5}}, "train.freeze_after", r"a\["),
    ({"freeze_after": {"a": 0}}, "train.freeze_after", "0.3"),
    ({"freeze_after": {"a": 0.5, "b": 1}}, "train.freeze_after", "0.3"),
    ({"freeze_after": {"a": True}}, "train.freeze_after", "0.3"),
    ({"freeze_after": {"a": "half"}}, "train.freeze_after", "0.3"),
    ({"freeze_after": ["a"]}, "train.freeze_after", "NAME"),
]


@pytest.mark.parametrize(("train", "setting", "use"), REFUSED)
def test_refused_by_name(train, setting, use):
    error = refusal(TrainSettings, train)
    assert error.setting == setting
    assert use in error.suggestion


def test_an_evaluator_comes_too_late_for_decisions():
    parallel = {"strategy": "multi_worker_mirrored", "workers": 2, "evaluator": True}
    for train in ({"early_stopping_patience": 2}, {"schedule": "reduce_on_plateau"}):
        error = refusal(TrainingSettings, {"train": train, "parallel": parallel})
        assert error.suggestion == "parallel.evaluator: false"


def test_they_travel_flat():
    settings = TrainingSettings.model_validate(
        {
            "train": {
                "optimizer": "adam",
                "optimizer_args": {"beta_1": 0.8},
                "schedule": "piecewise_constant_decay",
                "schedule_args": {"boundaries": [5], "values": [1.0, 0.5]},
                "frozen": ["a", "b,c"],
                "freeze_after": {"d": 0.5, "e": 0.25},
                "learning_rate_multipliers": {"head": 2, "h": 3},
                "weight_decay_exclude": "x",
                "callbacks": ["a:b", "c.d:e"],
            }
        }
    )
    flat = settings.flat()
    assert all(type(value) in (int, float, str) for value in flat.values())
    assert TrainingSettings.from_flat(flat) == settings
    train = settings.train
    assert [*train.learning_rate_multipliers] == ["head", "h"]
    assert [*train.freeze_after.items()] == [("d", 0.5), ("e", 0.25)]
    assert train.frozen == ("a", "b,c")
    assert train.schedule_args["values"] == [1.0, 0.5]
    assert train.callbacks == ("a:b", "c.d:e")
    new = {"optimizer_args", "schedule_args", "frozen", "clip_value", "callbacks", "lookahead"}
    new |= {"freeze_after"}
    assert not {f"train_{name}" for name in new} & TrainingSettings().flat().keys()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sgd", {}, 1),
        ("adam", {}, 2),
        ("adam", {"amsgrad": True}, 3),
        ("lion", {}, 1),
        ("rmsprop", {"momentum": 0.5, "centered": True}, 3),
        ("adafactor", {}, 1 + 2 / 64),
    ],
)
def test_slots_in_a_plan(name, arguments, expected):
    train = TrainSettings(optimizer=name, optimizer_args=arguments)
    assert registries.OPTIMIZERS.get(name).slots_with(train) == expected


def test_names_of_slots_depend_on_the_weight_alone():
    model = keras.Sequential(
        [keras.Input((4,)), *(keras.layers.Dense(3, name=each) for each in "ab")], name="net"
    )
    for name in ("adafactor", "nadam", "muon"):
        train = TrainSettings(optimizer=name)
        whole = make_optimizer(train, model.trainable_variables)
        parts = [make_optimizer(train, model.get_layer(each).trainable_variables) for each in "ab"]
        both = {key for part in parts for key, _ in slots.named(part)}
        assert both == {key for key, _ in slots.named(whole)}
        assert len(both) == len(whole.variables)
        assert slots.shared(whole) == slots.shared(parts[0]) == slots.shared(parts[1])
        common = {key for key, _ in slots.named(parts[0])} & {
            key for key, _ in slots.named(parts[1])
        }
        assert common == slots.shared(whole)


@pytest.mark.parametrize(
    ("template", "setting"),
    [
        (lambda: keras.optimizers.Adam(0.5), "train.learning_rate: 0.5"),
        (lambda: keras.optimizers.Adam(0.02), "train.weight_decay: 0"),
        (lambda: keras.optimizers.Adam(0.02, clipnorm=1.0), "train.clip_norm"),
        (lambda: keras.optimizers.Adam(0.02, use_ema=True), "train.ema_decay"),
        (
            lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 5)),
            "train.schedule",
        ),
        (lambda: "text", "keras Optimizer"),
    ],
)
def test_a_users_optimizer_that_contradicts_the_settings(template, setting, monkeypatch):
    monkeypatch.setattr(MINE, "mine", template, raising=False)
    name = f"{__name__}:mine"
    with pytest.raises(SettingError) as caught:
        registries.OPTIMIZERS.get(name).verify(TrainSettings(optimizer=name))
    assert caught.value.value == name
    assert setting in caught.value.suggestion


def test_a_users_optimizer_that_is_not_there():
    train = TrainSettings(optimizer="no_such_module:mine")
    with pytest.raises(UserError) as caught:
        registries.OPTIMIZERS.get(train.optimizer).make(train)
    assert caught.value.setting == "train.optimizer"
    name = f"{__name__}:MIME"
    with pytest.raises(SettingError) as caught:
        registries.OPTIMIZERS.get(name).make(TrainSettings(optimizer=name))
    assert caught.value.setting == "train.optimizer"


class Bare(keras.optimizers.SGD):
    """Its configuration lacks what its constructor needs."""

    def __init__(self, first, **others):
        super().__init__(**others)


def test_a_users_class_without_a_whole_configuration(monkeypatch):
    monkeypatch.setattr(MINE, "mine", lambda: Bare(1), raising=False)
    name = f"{__name__}:mine"
    with pytest.raises(UserError) as caught:
        registries.OPTIMIZERS.get(name).make(TrainSettings(optimizer=name))
    assert caught.value.setting == "train.optimizer"


def test_its_code_counts():
    code = registries.code({"train_optimizer": "mine.opt:make", "train_callbacks": "a:b,c:d"})
    assert {"mine.opt:make", "a:b", "c:d"} <= set(code)


def test_a_schedule_of_keras_after_the_warm_up():
    arguments = {"decay_steps": 4, "end_learning_rate": 0.25}
    train = TrainSettings(
        schedule="polynomial_decay", schedule_args=arguments, learning_rate=1.0, warmup_steps=2
    )
    rate = learning_rate(train, 10)
    assert [float(rate(step)) for step in range(8)] == [
        0.5,
        1,
        1,
        0.8125,
        0.625,
        0.4375,
        0.25,
        0.25,
    ]
    assert not registries.SCHEDULES.get(train.schedule).depends_on_length


def test_a_users_schedule_is_computed_by_keras(monkeypatch):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    monkeypatch.setattr(MINE, "mine", lambda: schedule, raising=False)
    rate = learning_rate(TrainSettings(schedule=f"{__name__}:mine"), 10, tf.float64)
    assert float(rate(2)) == float(schedule(2))
