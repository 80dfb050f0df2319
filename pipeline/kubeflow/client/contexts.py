"""Named connections in a file without secrets, like kubectl's contexts. Imports no kfp."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml
from pydantic import Field, ValidationError

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.settings import Settings
from stagecraft.pipeline.settings import strict_yaml, validation


class Context(Settings):
    """Address of Kubeflow Pipelines, and credentials for it."""

    credentials_advice: ClassVar[str] = (
        "a context stores no credentials, so set --token-file or --cookies-file"
    )

    endpoint: str | None = Field(
        None,
        description="address of Kubeflow Pipelines, such as "
        "https://kubeflow.example.com/pipeline; default: the cluster of this pod, or of the "
        "kubectl configuration",
    )
    ui_endpoint: str | None = Field(
        None, description="address of the user interface, for links; default: the endpoint"
    )
    namespace: str | None = Field(
        None,
        description="namespace of the pods: of the profile in a multi-user Kubeflow, otherwise of "
        "the installation; default: kubeflow",
    )
    token_file: str | None = Field(None, description="file with a bearer token")
    cookies_file: str | None = Field(
        None, description="file with cookies as a browser sends them, as dex's authservice_session"
    )
    iap_client_id: str | None = Field(
        None, description="OAuth client ID of Google's Identity-Aware Proxy"
    )
    other_client_id: str | None = Field(
        None, description="OAuth client ID of a desktop application that signs in at the proxy"
    )
    other_client_secret_file: str | None = Field(
        None, description="file with the secret of the desktop application"
    )
    ca_file: str | None = Field(
        None, description="certificates to trust (PEM), for a server with a self-signed certificate"
    )
    verify_tls: bool = Field(True, description="false: accept any certificate")
    proxy: str | None = Field(None, description="HTTP proxy, such as http://proxy.example.com:3128")
    kube_context: str | None = Field(
        None,
        description="context of the kubectl configuration, for logs; default: the current context",
    )
    timeout_seconds: float = Field(
        30.0, gt=0, le=86_400, description="seconds to wait for a response"
    )


class Contexts(Settings):
    """The whole file."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """The context of a name."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise SettingError(
                "context",
                name,
                f"does not exist (contexts in {path()}: {known})",
                f"'stagecraft kubeflow contexts set {name} --endpoint ADDRESS' to create it",
            )
        return self.contexts[name]


def path() -> pathlib.Path:
    """Path of the file: ``STAGECRAFT_CONTEXTS``, or in the XDG configuration folder."""
    if file := os.environ.get("STAGECRAFT_CONTEXTS"):
        return pathlib.Path(file)
    home = os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config"
    return pathlib.Path(home) / "stagecraft" / "contexts.yaml"


def load() -> Contexts:
    """Reads the file; a missing file has no contexts."""
    try:
        tree = strict_yaml.read(path())
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UserError(f"{path()} cannot be read: {error.strerror}.", file=str(path())) from None
    try:
        return Contexts.model_validate({} if tree is None else tree)
    except ValidationError as error:
        raise UserError(f"{path()}: {_first(error)}", file=str(path())) from None


def make(fields: Mapping[str, Any]) -> Context:
    """Makes a context of a person's fields."""
    try:
        return Context.model_validate(fields)
    except ValidationError as error:
        raise UserError(_first(error)) from None


def _first(error: ValidationError) -> str:
    """The first mistake, without the value."""
    [first, *_] = error.errors(include_url=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"])
    message = secrets.redact(validation.message_of(first))
    return f"{where}: {message}" if where else message


def save(contexts: Contexts) -> None:
    """Writes the file atomically, readable by its owner alone."""
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
        raise UserError(
            f"{target} cannot be written: {error.strerror}.", file=str(target)
        ) from None
