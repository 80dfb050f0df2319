"""Resolves the address of Kubeflow Pipelines and the credentials for it.

Options of the command line come first. Other fields come from exactly one of these sources, so that
no token goes to another server:

1. the context that ``--context`` names, or the environment if no endpoint is given;
2. the environment, if it names no other endpoint;
3. the current context, if nothing names an endpoint.

Imports neither kfp nor Kubernetes.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
import ssl
import sys
import urllib.parse
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow.client import contexts
from stagecraft.pipeline.kubeflow.client.contexts import Context

TOKEN, COOKIES, CONTEXT = (
    "STAGECRAFT_KUBEFLOW_TOKEN",
    "STAGECRAFT_KUBEFLOW_COOKIES",
    "STAGECRAFT_KUBEFLOW_CONTEXT",
)
"""Environment variables of this project: two secrets, and the name of a context. The secrets apply
to each connection except a named context."""

KFP = {
    "endpoint": "KF_PIPELINES_ENDPOINT",
    "ui_endpoint": "KF_PIPELINES_UI_ENDPOINT",
    "iap_client_id": "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID",
    "other_client_id": "KF_PIPELINES_APP_OAUTH2_CLIENT_ID",
}
"""Environment variables of the kfp client (kfp/client/client.py)."""

KFP_SECRET = "KF_PIPELINES_APP_OAUTH2_CLIENT_SECRET"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """A context with its secrets."""

    context: Context
    token: SecretStr | None = None
    renewed_token: pathlib.Path | None = None
    """The token's file, if the token may be renewed."""

    cookies: SecretStr | None = None
    other_client_secret: SecretStr | None = None

    def redact(self, text: str, headers: Mapping[str, str] | None = None) -> str:
        """Removes the secrets of the connection, and of a request's headers, from a text."""
        known = (self.token, self.cookies, self.other_client_secret)
        secrets = [secret.get_secret_value() for secret in known if secret] + [
            value
            for name, value in (headers or {}).items()
            if name.lower() in ("authorization", "cookie")
        ]
        for part in itertools.chain.from_iterable(re.split(r"[;\s]+", one) for one in secrets):
            for value in (part, part.partition("=")[2]):
                if len(value) >= 4 and value != "Bearer":  # a shorter value is part of many words
                    text = text.replace(value, "…")
        return text


def resolve(options: Mapping[str, Any], context: str | None = None) -> Connection:
    """Resolves a connection; in ``options``, None is an option that is not given."""
    explicit = {name: value for name, value in options.items() if value is not None}
    from_environment = {
        field: os.environ[name] for field, name in KFP.items() if os.environ.get(name)
    }
    known = contexts.load()
    name = context or (None if "endpoint" in explicit else os.environ.get(CONTEXT))
    if name:
        base = known.named(name)
    elif "endpoint" in explicit and from_environment.get("endpoint") not in (
        None,
        explicit["endpoint"],
    ):
        base = Context()  # the environment belongs to another endpoint
    elif "endpoint" in explicit or "endpoint" in from_environment:
        base = contexts.make(from_environment)
    elif known.current:
        base = known.named(known.current)
    else:
        base = contexts.make(from_environment)
    resolved = checked(contexts.make(base.model_dump() | explicit))

    def of_environment(field: str, variable: str) -> str:
        return "" if name or field in explicit else os.environ.get(variable, "").strip()

    def secret(field: str, variable: str) -> SecretStr | None:
        if value := of_environment(field, variable):
            return SecretStr(value)
        file = getattr(resolved, field)
        return None if file is None else read(file, field)

    file = resolved.token_file
    from_file = file not in (None, "-") and not of_environment("token_file", TOKEN)
    return Connection(
        context=resolved,
        token=secret("token_file", TOKEN),
        renewed_token=pathlib.Path(file).expanduser() if file and from_file else None,
        cookies=secret("cookies_file", COOKIES),
        other_client_secret=secret("other_client_secret_file", KFP_SECRET),
    )


def checked(context: Context) -> Context:
    """Checks and completes a context's addresses and certificates."""
    changed = {}
    for field in ("endpoint", "ui_endpoint", "proxy"):
        address = getattr(context, field) or ""
        try:
            whole = address if "://" in address else f"https://{address}"
            secrets.refuse_in_address(whole, Context.credentials_advice)
        except secrets.SecretInAddress as error:
            raise UserError(f"{field}: {error}.", setting=field) from None
    if endpoint := context.endpoint:
        changed["endpoint"] = endpoint if "://" in endpoint else f"https://{endpoint}"  # as kfp
        try:
            parts = urllib.parse.urlsplit(changed["endpoint"])
            fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fine = False
        if not fine or re.search(r"\s", endpoint):
            raise SettingError(
                "endpoint",
                secrets.redact(endpoint),
                "is not a URL",
                "an address such as https://kubeflow.example.com/pipeline",
            )
    if context.ca_file:
        changed["ca_file"] = str(pathlib.Path(context.ca_file).expanduser())
        try:
            ssl.create_default_context(cafile=changed["ca_file"])
        except ssl.SSLError:
            raise SettingError(
                "ca_file", context.ca_file, "contains no certificates (PEM)"
            ) from None
        except OSError as error:
            raise SettingError(
                "ca_file", context.ca_file, f"cannot be read: {error.strerror}"
            ) from None
    return context.model_copy(update=changed)


def read(file: str, field: str) -> SecretStr:
    """Reads a secret from a file; ``-``: from standard input."""
    try:
        text = sys.stdin.read() if file == "-" else pathlib.Path(file).expanduser().read_text()
    except OSError as error:
        raise SettingError(field, file, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(field, file, "is not text") from None
    if not text.strip() or "\n" in text.strip():
        raise SettingError(field, file, "must contain exactly one line")
    return SecretStr(text.strip())
