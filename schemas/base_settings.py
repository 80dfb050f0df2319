"""The base of every section of settings."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from stagecraft.schemas import secrets
from stagecraft.schemas.errors import UserError, setting_error

LARGEST = 2**63 - 1
"""Largest integer of ML Metadata, TensorFlow and Kubernetes (int64)."""


class Settings(BaseModel):
    """Base of every section: frozen; an unknown key is an error that suggests the nearest one.

    Numbers are finite, integers have 64 bits, and no address contains a password or a signature.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    credentials_advice: ClassVar[str] = (
        "pass credentials by the environment, such as AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or by kubeflow.every_step.secrets"
    )
    """How to pass credentials instead of in an address."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else ""
                    known = "the known settings are " + ", ".join(cls.model_fields)
                    shown = secrets.redact(f"{str(key)!r}")
                    raise ValueError(f"unknown setting {shown}; {hint or known}")
        return data

    @field_validator("*", mode="after")
    @classmethod
    def _refuse_everywhere(cls, value: Any) -> Any:
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int) and abs(item) > LARGEST:
                raise ValueError("expected less than 2^63")
            if isinstance(item, str):
                secrets.refuse_in_address(item, cls.credentials_advice)
        return value


@contextlib.contextmanager
def readable(section: str = "") -> Iterator[None]:
    """Raises pydantic's first error as a UserError; ``section``: of the settings in the block."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors()[0]
        own = setting_error(problem)
        if own is not None:
            raise own from None
        setting = ".".join([*filter(None, [section]), *map(str, problem["loc"])])
        value = f"{problem['input']}: " if problem["loc"] else ""
        raise UserError(
            f"{setting}: {value}{problem['msg'].removeprefix('Value error, ')}",
            setting=setting,
            value=problem.get("input"),
        ) from None
