"""Which Kubeflow Pipelines is meant, and with which credentials.

What is given on the command line counts first. Beneath it lies one of: the context that was named;
the environment, if it names an endpoint; the current context. They are never mixed, so that no
token goes to a server that it was not meant for. Imports neither kfp nor Kubernetes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from stagecraft.pipeline.kubeflow.client import contexts
from stagecraft.pipeline.kubeflow.client.contexts import Context
from stagecraft.schemas.errors import UserError

TOKEN, COOKIES, CONTEXT = (
    "STAGECRAFT_KUBEFLOW_TOKEN",
    "STAGECRAFT_KUBEFLOW_COOKIES",
    "STAGECRAFT_KUBEFLOW_CONTEXT",
)
"""Environment variables of our own: two secrets, and the name of a context. The secrets are for
whatever is connected to, but for a context that is named."""

_KFP = {
    "endpoint": "KF_PIPELINES_ENDPOINT",
    "ui_endpoint": "KF_PIPELINES_UI_ENDPOINT",
    "iap_client_id": "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID",
    "other_client_id": "KF_PIPELINES_APP_OAUTH2_CLIENT_ID",
}
"""Environment variables that the kfp client knows (kfp/client/client.py)."""

_KFP_SECRET = "KF_PIPELINES_APP_OAUTH2_CLIENT_SECRET"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """A context with its secrets."""

    context: Context
    token: SecretStr | None = None
    renewed_token: pathlib.Path | None = None
    """Where the token came from, if it may be another one by and by."""

    cookies: SecretStr | None = None
    other_client_secret: SecretStr | None = None

    def redact(self, text: str) -> str:
        """The text without the secrets, should one of them be in it."""
        for secret in (self.token, self.cookies, self.other_client_secret):
            for part in secret.get_secret_value().split("; ") if secret else ():
                for value in {part, part.partition("=")[2]}:
                    if len(value) >= 4:  # a shorter one is in many words
                        text = text.replace(value, "…")
        return text


def resolve(options: Mapping[str, Any], context: str | None = None) -> Connection:
    """Puts together what was given.

    Args:
        options: fields of :class:`Context` from the command line; None: not given.
        context: name of a context.

    Raises:
        UserError: no such context, or a file of it cannot be read.
    """
    given = {name: value for name, value in options.items() if value is not None}
    from_environment = {
        field: os.environ[name] for field, name in _KFP.items() if os.environ.get(name)
    }
    known = contexts.load()
    name = context or os.environ.get(CONTEXT)
    if name:
        base = known.named(name)
    elif "endpoint" in given or "endpoint" in from_environment:
        base = Context.model_validate(from_environment)
    elif known.current:
        base = known.named(known.current)
    else:
        base = Context.model_validate(from_environment)
    resolved = Context.model_validate(base.model_dump() | given)

    def secret(field: str, variable: str) -> SecretStr | None:
        value = os.environ.get(variable, "").strip()
        if value and not name and field not in given:
            return SecretStr(value)
        return _read(getattr(resolved, field), field)

    token, cookies = secret("token_file", TOKEN), secret("cookies_file", COOKIES)
    file = resolved.token_file
    from_file = file is not None and file != "-" and token == _read(file, "token_file")
    return Connection(
        context=resolved,
        token=token,
        renewed_token=pathlib.Path(file).expanduser() if file and from_file else None,
        cookies=cookies,
        other_client_secret=secret("other_client_secret_file", _KFP_SECRET),
    )


def _read(file: str | None, field: str) -> SecretStr | None:
    if file is None:
        return None
    try:
        text = sys.stdin.read() if file == "-" else pathlib.Path(file).expanduser().read_text()
    except OSError as error:
        raise UserError(f"{field}: {file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{field}: {file}: is no text.") from None
    if not text.strip() or "\n" in text.strip():
        raise UserError(f"{field}: {file}: expected one line, and nothing else.")
    return SecretStr(text.strip())
