"""What all commands of ``stagecraft kubeflow`` have: where to, as whom, and how errors are told."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click

from stagecraft.pipeline.cli.options import Command

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.client.api import Api

_FIELDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "endpoint": (
        ("--endpoint",),
        {"metavar": "ADDRESS", "help": "Of Kubeflow Pipelines, as https://host/pipeline."},
    ),
    "namespace": (
        ("--namespace", "-n"),
        {"help": "Of the runs' pods: your profile's, or where Kubeflow Pipelines is installed."},
    ),
    "token_file": (
        ("--token-file",),
        {"metavar": "FILE", "help": "With a bearer token; - for standard input."},
    ),
    "cookies_file": (
        ("--cookies-file",),
        {"metavar": "FILE", "help": "With cookies, as authservice_session=…"},
    ),
    "iap_client_id": (
        ("--iap-client-id",),
        {"help": "Client ID of Google's Identity-Aware Proxy."},
    ),
    "other_client_id": (
        ("--other-client-id",),
        {"help": "OAuth client of a desktop application, to get through that proxy as."},
    ),
    "other_client_secret_file": (
        ("--other-client-secret-file",),
        {"metavar": "FILE", "help": "With that one's secret."},
    ),
    "ca_file": (("--ca-file",), {"metavar": "FILE", "help": "Certificates to trust (PEM)."}),
    "verify_tls": (
        ("--insecure",),
        {"flag_value": False, "default": None, "help": "Take any certificate."},
    ),
    "proxy": (("--proxy",), {"metavar": "ADDRESS", "help": "HTTP proxy."}),
    "kube_context": (("--kube-context",), {"help": "Of kubectl's configuration, for logs."}),
    "timeout_seconds": (
        ("--timeout",),
        {
            "type": click.FloatRange(min=0, min_open=True, max=86_400),
            "help": "For an answer, in seconds.",
        },
    ),
}
"""Options by the context's field. No secret is a value of one: everybody on a machine can read
command lines."""


@dataclasses.dataclass(frozen=True)
class Given:
    """What was given of it."""

    fields: dict[str, Any]
    """By name of a context's field; None: not given."""

    context: str | None
    as_json: bool


def context_fields(command: Command) -> Command:
    """Options for the fields of a context."""
    for field, (flags, options) in reversed(_FIELDS.items()):
        command = click.option(*flags, field, **options)(command)
    return command


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those, ``--context`` and ``--json``, as one argument ``given``."""

    @functools.wraps(command)
    def collected(*, context: str | None, as_json: bool, **values: Any) -> Any:
        fields = {field: values.pop(field) for field in _FIELDS}
        return command(given=Given(fields, context, as_json), **values)

    which = click.option("--context", help="One of 'stagecraft kubeflow contexts list'.")
    as_json = click.option("--json", "as_json", is_flag=True, help="One object on stdout, no more.")
    return as_json(which(context_fields(collected)))


def act(given: Given, action: Callable[[Api], int | None]) -> NoReturn:
    """Connects and does it; ends the process with the action's exit code."""
    from stagecraft.pipeline.cli.quiet import quiet

    quiet()
    from stagecraft.pipeline.cli import console  # --help needs none of it
    from stagecraft.pipeline.kubeflow.client.connection import resolve
    from stagecraft.schemas.errors import UserError

    try:
        connection = resolve(given.fields, given.context)
        from stagecraft.pipeline.kubeflow.client.api import Api

        code = action(Api(connection))
    except UserError as error:
        if given.as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code or 0)
