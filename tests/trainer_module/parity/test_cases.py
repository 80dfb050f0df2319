import pytest

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.parity.cases import Case
from stagecraft.trainer_module.settings import TrainingSettings

NAMED = cases.named()


def _select(names: str, **parallel: object) -> list[Case]:
    settings = TrainingSettings.model_validate({"parallel": parallel})
    return cases.select(names, settings, steps=8, batch_size=24)


def test_all_are_all_names_and_the_configured_one():
    assert [case.name for case in _select("all")] == list(NAMED)
    own = _select("all", strategy="grid", stages=2, microbatches=4, accumulate=2, virtual_devices=2)
    assert [case.name for case in own] == [*NAMED, "configured"]


def test_a_configured_topology_that_has_a_name_runs_once():
    found = _select("all", strategy="mirrored", replicas=2, virtual_devices=2)
    assert [case.name for case in found] == list(NAMED)
    assert [case.name for case in _select("stages-2, stages-2")] == ["stages-2"]


def test_nothing_is_augmented_and_all_else_is_kept():
    asked = {"model": "resnet20", "optimizer": "adamw", "seed": 7, "epochs": 3, "warmup_steps": 500}
    task = {"name": "image_classification", "args": {"class_weights": [1, 2]}}
    settings = TrainingSettings.model_validate({"task": task, "train": asked})
    (case,) = cases.select("grid-2x2", settings, steps=8, batch_size=24)
    train = case.settings.train
    assert (train.augment, train.steps, train.epochs) == ((), 8, None)
    assert (train.model, train.optimizer, train.seed) == ("resnet20", "adamw", 7)
    assert case.settings.task == settings.task
    assert train.warmup_steps == 2, "no longer than the trajectory"


def test_the_task_is_kept():
    settings = TrainingSettings.model_validate(
        {"task": {"name": "taxi"}, "train": {"model": "wide_deep_8"}}
    )
    (case,) = cases.select("mirrored-2", settings, steps=8, batch_size=24)
    for found in (
        case.settings,
        case.reference(same_parts=True),
        cases.in_float64(case.settings),
        cases.whole_batches(case.settings),
    ):
        assert found.task == settings.task


def test_the_batch_is_rounded_up_to_what_is_divided():
    settings = TrainingSettings()
    sizes = {
        case.name: case.settings.train.batch_size
        for case in cases.select("all", settings, steps=8, batch_size=17)
    }
    assert (sizes["stages-2"], sizes["mirrored-4"], sizes["microbatches-8"]) == (17, 20, 24)


@pytest.mark.parametrize("name", NAMED)
def test_each_has_a_reference_on_one_device(name):
    (case,) = _select(name)
    for same_parts in (True, False):
        reference = case.reference(same_parts=same_parts)
        assert reference.train == case.settings.train
        assert reference.parallel.strategy == "one_device"
        assert reference.parallel.parts == (case.settings.parallel.parts if same_parts else 1)
        assert reference.parallel.precision == case.settings.parallel.precision
        assert not reference.parallel.remat


def test_a_named_topology_keeps_precision_and_remat():
    (case,) = _select("stages-2", precision="mixed_float16", remat=True)
    parallel = case.settings.parallel
    assert (parallel.precision, parallel.remat) == ("mixed_float16", True)


def test_what_does_not_go_together_is_left_out_of_all_and_refused_by_name():
    half = [case.name for case in _select("all", precision="mixed_float16")]
    assert set(NAMED) - set(half) == {"parameter_server-1"}
    with pytest.raises(UserError, match=r"parameter_server\-1"):
        _select("parameter_server-1", precision="mixed_float16")


def test_in_float64_the_learning_rate_is_small_and_constant():
    (case,) = _select("mirrored-2")
    exact = cases.in_float64(case.settings)
    assert (exact.train.learning_rate, exact.train.schedule) == (1e-3, "constant")
    assert exact.parallel.precision == "float64"
    assert exact.parallel.strategy == "mirrored"


@pytest.mark.parametrize(
    ("names", "value", "suggestion"),
    [
        ("mirorred-2", "mirorred-2", "mirrored-2"),
        ("xyz", "xyz", f"one of {', '.join(NAMED)}, or all"),
        ("", None, ""),
        ("configured", None, ""),
    ],
)
def test_other_names_are_refused(names, value, suggestion):
    with pytest.raises(UserError) as caught:
        _select(names)
    assert (caught.value.value, caught.value.suggestion) == (value, suggestion)


def test_one_device_has_nothing_to_prove():
    assert cases.configured(TrainingSettings(), steps=8, batch_size=24) is None
    turns = TrainingSettings.model_validate({"parallel": {"accumulate": 2}})
    case = cases.configured(turns, steps=8, batch_size=24)
    assert case is not None
    assert case.settings.parallel.parts == 2
