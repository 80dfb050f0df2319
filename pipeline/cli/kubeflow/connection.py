"""The options that connect to a Kubeflow cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stagecraft.pipeline.cli.options import Decorated, not_empty

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.client.api import Api

_OPTIONS = {
    "endpoint": click.option(
        "--endpoint",
        metavar="ADDRESS",
        help="The address of Kubeflow Pipelines, such as https://host/pipeline.",
    ),
    "namespace": click.option(
        "--namespace",
        "-n",
        help="The namespace of the pods: your profile, or kubeflow if you have no profile.",
    ),
    "token_file": click.option(
        "--token-file", metavar="FILE", help="A file with a bearer token; - for standard input."
    ),
    "cookies_file": click.option(
        "--cookies-file", metavar="FILE", help="A file with cookies, such as authservice_session=…"
    ),
    "iap_client_id": click.option(
        "--iap-client-id", help="The client ID of Google's Identity-Aware Proxy."
    ),
    "other_client_id": click.option(
        "--other-client-id",
        help="The OAuth client ID of a desktop application, to sign in at the proxy of "
        "--iap-client-id.",
    ),
    "other_client_secret_file": click.option(
        "--other-client-secret-file",
        metavar="FILE",
        help="A file with the secret of --other-client-id.",
    ),
    "ca_file": click.option(
        "--ca-file", metavar="FILE", help="A file with certificates to trust (PEM)."
    ),
    "verify_tls": click.option(
        "--insecure", "verify_tls", flag_value=False, default=None, help="Accept any certificate."
    ),
    "proxy": click.option("--proxy", metavar="ADDRESS", help="The address of an HTTP proxy."),
    "kube_context": click.option(
        "--kube-context", help="The context of the kubectl configuration, for logs."
    ),
    "timeout_seconds": click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        help="The time limit for a response, in seconds.",
    ),
}
"""Options by the context's field. None takes a secret as its value: every user of a machine can
read command lines."""


def context_fields(command: Decorated) -> Decorated:
    """Adds an option for each field of a context; None means that the option is missing."""
    for option in reversed(_OPTIONS.values()):
        command = option(command)
    return command


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds those options, ``--context`` and ``--json``: arguments ``api`` and ``as_json``."""

    @functools.wraps(command)
    def connected(*, context: str | None, **values: Any) -> Any:
        return command(
            api=_connect({field: values.pop(field) for field in _OPTIONS}, context), **values
        )

    which = click.option("--context", help="A context of 'stagecraft kubeflow contexts list'.")
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Print only one JSON object on stdout."
    )
    return as_json(which(context_fields(connected)))


def _connect(fields: dict[str, Any], context: str | None) -> Api:
    """Connects to the cluster that options, environment and contexts name."""
    from stagecraft.pipeline.kubeflow.client.connection import resolve  # --help needs none of it

    connection = resolve(fields, context)
    from stagecraft.pipeline.kubeflow.client.api import Api

    return Api(connection)


def run_options(command: Decorated) -> Decorated:
    """Adds ``--experiment``, ``--pipeline-root`` and ``--service-account``."""
    added = (
        click.option(
            "--experiment",
            callback=not_empty,
            help="The experiment of a run. Default: the name of the pipeline.",
        ),
        click.option(
            "--pipeline-root",
            metavar="ADDRESS",
            help="The root URI of the outputs. Default: the root of the pipeline.",
        ),
        click.option(
            "--service-account",
            help="The service account of the pods. Default: the server chooses.",
        ),
    )
    for option in reversed(added):
        command = option(command)
    return command


def links(api: Api, path: str) -> list[tuple[str, str]]:
    """A field with the address of a page of the UI; empty if the address is unknown."""
    link = api.link(path)
    return [("see", link)] if link else []
