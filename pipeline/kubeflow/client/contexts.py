"""Named connections in a file, as kubectl has them.

The file holds no secret: tokens and cookies stay in files of their own, whose paths it names.
Imports neither kfp nor Kubernetes.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml
from pydantic import Field, ValidationError

from stagecraft.pipeline.settings import strict_yaml
from stagecraft.schemas import secrets
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError


class Context(Settings):
    """Where Kubeflow Pipelines is, and who asks."""

    credentials_advice: ClassVar[str] = (
        "a context holds none; give a token or cookies by --token-file or --cookies-file"
    )

    endpoint: str | None = Field(
        None,
        description="address of Kubeflow Pipelines, as https://kubeflow.example.com/pipeline; "
        "default: of this pod's cluster, else through kubectl's configuration",
    )
    ui_endpoint: str | None = Field(
        None, description="address of the user interface, for links; default: the endpoint"
    )
    namespace: str | None = Field(
        None,
        description="where runs' pods are: the profile's namespace where Kubeflow has several "
        "users, else where it is installed; default: kubeflow",
    )
    token_file: str | None = Field(None, description="file with a bearer token")
    cookies_file: str | None = Field(
        None, description="file with cookies as a browser sends them, as dex's authservice_session"
    )
    iap_client_id: str | None = Field(
        None, description="OAuth client ID of Google's Identity-Aware Proxy"
    )
    other_client_id: str | None = Field(
        None, description="OAuth client ID of a desktop application, to get through the proxy as"
    )
    other_client_secret_file: str | None = Field(None, description="file with that one's secret")
    ca_file: str | None = Field(
        None, description="certificates to trust (PEM), where the server has one of its own making"
    )
    verify_tls: bool = Field(True, description="false: accept any certificate")
    proxy: str | None = Field(None, description="HTTP proxy, as http://proxy.example.com:3128")
    kube_context: str | None = Field(
        None, description="context of kubectl's configuration, for logs; default: the current one"
    )
    timeout_seconds: float = Field(30.0, gt=0, le=86_400, description="for an answer, in seconds")


class Contexts(Settings):
    """The whole file."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """One of them.

        Raises:
            UserError: there is none of that name.
        """
        if name not in self.contexts:
            raise UserError(
                f"{name}: no such context; {path()} has "
                f"{', '.join(sorted(self.contexts)) or 'none'}. Make one with 'stagecraft kubeflow "
                f"contexts set {name} --endpoint ADDRESS'."
            )
        return self.contexts[name]


def path() -> pathlib.Path:
    """Where the file is: ``STAGECRAFT_CONTEXTS``, else in the XDG configuration folder."""
    if given := os.environ.get("STAGECRAFT_CONTEXTS"):
        return pathlib.Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config"
    return pathlib.Path(home) / "stagecraft" / "contexts.yaml"


def load() -> Contexts:
    """Reads the file; one that is not there has no contexts.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    try:
        tree = strict_yaml.read(path())
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UserError(f"{path()}: cannot be read: {error.strerror}.") from None
    try:
        return Contexts.model_validate({} if tree is None else tree)
    except ValidationError as error:
        raise UserError(f"{path()}: {_first(error)}") from None


def made(fields: Mapping[str, Any]) -> Context:
    """A context of fields that a person gave.

    Raises:
        UserError: a value cannot be.
    """
    try:
        return Context.model_validate(fields)
    except ValidationError as error:
        raise UserError(_first(error)) from None


def _first(error: ValidationError) -> str:
    """The first mistake; what was given is not in it."""
    [first, *_] = error.errors(include_url=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"])
    message = secrets.redact(first["msg"].removeprefix("Value error, "))
    return f"{where}: {message}" if where else message


def save(contexts: Contexts) -> None:
    """Writes the whole file or nothing, readable by its owner alone.

    Raises:
        UserError: it cannot be written.
    """
    target = path()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    tree = contexts.model_dump(exclude_defaults=True)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch(mode=0o600)
        unfinished.write_text(yaml.safe_dump(tree, sort_keys=True))
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"{target}: cannot be written: {error.strerror}.") from None
