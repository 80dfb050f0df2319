"""Validators of ``train:`` lie apart from its fields: pydantic does not check the names."""

from __future__ import annotations

from stagecraft.trainer_module.settings import TrainSettings


def test_each_validator_is_of_a_field():
    validators = TrainSettings.__pydantic_decorators__.field_validators
    named = {name for each in validators.values() for name in each.info.fields} - {"*"}
    assert named >= {"model", "frozen", "augment"}
    assert named <= TrainSettings.model_fields.keys()
