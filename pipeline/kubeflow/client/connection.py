"""Which Kubeflow Pipelines is meant, and with which credentials.

What is given on the command line counts first. Beneath it lies one of: the context that was named
there, or in the environment if no endpoint was; the environment, if it names no other endpoint; the
current context, if nobody names an endpoint. They are never mixed, so that no token goes to a
server that it was not meant for. Imports neither kfp nor Kubernetes.
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

from stagecraft.pipeline.kubeflow.client import contexts
from stagecraft.pipeline.kubeflow.client.contexts import Context
from stagecraft.schemas import secrets
from stagecraft.schemas.errors import UserError

TOKEN, COOKIES, CONTEXT = (
    "STAGECRAFT_KUBEFLOW_TOKEN",
    "STAGECRAFT_KUBEFLOW_COOKIES",
    "STAGECRAFT_KUBEFLOW_CONTEXT",
)
"""Environment variables of our own: two secrets, and the name of a context. The secrets are for
whatever is connected to, but for a context that is named."""

KFP = {
    "endpoint": "KF_PIPELINES_ENDPOINT",
    "ui_endpoint": "KF_PIPELINES_UI_ENDPOINT",
    "iap_client_id": "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID",
    "other_client_id": "KF_PIPELINES_APP_OAUTH2_CLIENT_ID",
}
"""Environment variables that the kfp client knows (kfp/client/client.py)."""

KFP_SECRET = "KF_PIPELINES_APP_OAUTH2_CLIENT_SECRET"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """A context with its secrets."""

    context: Context
    token: SecretStr | None = None
    renewed_token: pathlib.Path | None = None
    """Where the token came from, if it may be another one by and by."""

    cookies: SecretStr | None = None
    other_client_secret: SecretStr | None = None

    def redact(self, text: str, headers: Mapping[str, str] | None = None) -> str:
        """The text without the secrets, should one of them be in it.

        Args:
            text: such as a server's answer, which may repeat what it was sent.
            headers: that were sent; credentials may have come from elsewhere, or be new ones.
        """
        known = (self.token, self.cookies, self.other_client_secret)
        secrets = [secret.get_secret_value() for secret in known if secret] + [
            value
            for name, value in (headers or {}).items()
            if name.lower() in ("authorization", "cookie")
        ]
        for part in itertools.chain.from_iterable(re.split(r"[;\s]+", one) for one in secrets):
            for value in (part, part.partition("=")[2]):
                if len(value) >= 4 and value != "Bearer":  # a shorter one is in many words
                    text = text.replace(value, "…")
        return text


def resolve(options: Mapping[str, Any], context: str | None = None) -> Connection:
    """Puts together what was given.

    Args:
        options: fields of :class:`Context` from the command line; None: not given.
        context: name of a context.

    Raises:
        UserError: no such context, a file of it that cannot be read, or an address that is none.
    """
    given = {name: value for name, value in options.items() if value is not None}
    from_environment = {
        field: os.environ[name] for field, name in KFP.items() if os.environ.get(name)
    }
    known = contexts.load()
    name = context or (None if "endpoint" in given else os.environ.get(CONTEXT))
    if name:
        base = known.named(name)
    elif "endpoint" in given and from_environment.get("endpoint") not in (None, given["endpoint"]):
        base = Context()  # the environment is about another endpoint
    elif "endpoint" in given or "endpoint" in from_environment:
        base = contexts.made(from_environment)
    elif known.current:
        base = known.named(known.current)
    else:
        base = contexts.made(from_environment)
    resolved = checked(contexts.made(base.model_dump() | given))

    def of_environment(field: str, variable: str) -> str:
        return "" if name or field in given else os.environ.get(variable, "").strip()

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
    """A context whose addresses and certificates can be, as they are used.

    Raises:
        UserError: one cannot.
    """
    changed = {}
    for field in ("endpoint", "ui_endpoint", "proxy"):
        address = getattr(context, field) or ""
        try:
            whole = address if "://" in address else f"https://{address}"
            secrets.refuse_in_address(whole, Context.credentials_advice)
        except secrets.SecretInAddress as error:
            raise UserError(f"{field}: {error}.") from None
    if endpoint := context.endpoint:
        changed["endpoint"] = endpoint if "://" in endpoint else f"https://{endpoint}"  # as kfp
        try:
            parts = urllib.parse.urlsplit(changed["endpoint"])
            fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fine = False
        if not fine or re.search(r"\s", endpoint):
            raise UserError(
                f"endpoint: {secrets.redact(endpoint)}: expected an address, as "
                "https://kubeflow.example.com/pipeline."
            )
    if context.ca_file:
        changed["ca_file"] = str(pathlib.Path(context.ca_file).expanduser())
        try:
            ssl.create_default_context(cafile=changed["ca_file"])
        except ssl.SSLError:
            raise UserError(f"ca_file: {context.ca_file}: holds no certificates (PEM).") from None
        except OSError as error:
            raise UserError(
                f"ca_file: {context.ca_file}: cannot be read: {error.strerror}."
            ) from None
    return context.model_copy(update=changed)


def read(file: str, field: str) -> SecretStr:
    """A secret from a file; ``-``: from standard input.

    Raises:
        UserError: it cannot be read, or holds something else than one line.
    """
    try:
        text = sys.stdin.read() if file == "-" else pathlib.Path(file).expanduser().read_text()
    except OSError as error:
        raise UserError(f"{field}: {file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{field}: {file}: is no text.") from None
    if not text.strip() or "\n" in text.strip():
        raise UserError(f"{field}: {file}: expected one line, and nothing else.")
    return SecretStr(text.strip())
