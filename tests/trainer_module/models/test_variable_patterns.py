import keras
import pytest

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.settings import TrainSettings


@pytest.fixture
def model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, name="first"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="head"),
        ],
        name="net",
    )


def trained(model: keras.Model) -> list[str]:
    return ["/".join(v.path.split("/")[-2:]) for v in model.trainable_variables]


def test_a_layer_that_matches_as_a_whole_is_frozen_as_a_whole(model):
    variable_patterns.apply(TrainSettings(frozen=["first/kernel", "norm/"]), model)
    assert trained(model) == ["first/bias", "head/kernel", "head/bias"]
    assert [model.get_layer(name).trainable for name in ("first", "norm")] == [True, False]


def test_of_a_normalisation_only_the_weights(model):
    variable_patterns.apply(TrainSettings(frozen="norm/(gamma|beta)"), model)
    assert trained(model) == ["first/kernel", "first/bias", "head/kernel", "head/bias"]
    assert model.get_layer("norm").trainable


def test_the_first_multiplier_that_matches_counts():
    train = TrainSettings(learning_rate_multipliers={"head/bias": 4, "head": 2})
    paths = ("head/bias", "head/kernel", "first/kernel")
    assert [variable_patterns.multiplier(train, path) for path in paths] == [4, 2, 1]


@pytest.mark.parametrize(
    ("values", "near"),
    [
        ({"frozen": "hed/kernel"}, "head/kernel"),
        ({"frozen": ["first", "heads"]}, "head"),
        ({"learning_rate_multipliers": {"zzz": 2}}, "first/kernel"),
        ({"frozen": "first", "learning_rate_multipliers": {"first": 2}}, "head"),
        ({"weight_decay_exclude": "head/bias"}, "head/kernel"),
        ({"frozen": "."}, ""),
        ({"freeze_after": {"first": 0.5, "hed/kernel": 0.5}}, "head/kernel"),
        ({"freeze_after": {".": 0.5}}, "fewer"),
        ({"frozen": ["norm", "head"], "freeze_after": {"first": 0.5}}, "fewer"),
        ({"frozen": ["first/"], "freeze_after": {"first/bias": 0.5}}, "one of"),
    ],
)
def test_a_pattern_that_matches_nothing(model, values, near):
    *_, setting = values
    with pytest.raises(SettingError) as caught:
        variable_patterns.apply(TrainSettings(**values), model)
    assert caught.value.setting == f"train.{setting}"
    assert near in caught.value.suggestion


def test_a_pattern_may_match_some_frozen_weights():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="first")])
    model.add(keras.layers.Dense(2, name="head"))
    variable_patterns.apply(TrainSettings(frozen="first", freeze_after={"bias": 0.5}), model)
    assert trained(model) == ["head/kernel", "head/bias"]


def test_the_first_share_that_matches_counts():
    train = TrainSettings(freeze_after={"head/bias": 0.25, "head": 0.5})
    paths = ("head/bias", "head/kernel", "first/kernel")
    assert [variable_patterns.freeze_share(train, path) for path in paths] == [0.25, 0.5, None]
