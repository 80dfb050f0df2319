"""A connection to Kubeflow Pipelines: the kfp client, with errors in words and a timeout."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import sys
import urllib.parse
import warnings
from collections.abc import Iterator
from typing import Any

import kfp
import kfp_server_api
import urllib3
from kfp.client import auth

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.client import connection as connections, errors
from stagecraft.pipeline.kubeflow.client.connection import Connection

_PRINTS = ("create_experiment", "run_pipeline", "upload_pipeline", "upload_pipeline_version")


_PAGE = 100


class Api:
    """Calls methods of ``kfp.Client`` (API v2beta1), which are the same from 2.5 to 2.16."""

    def __init__(self, connection: Connection):
        self.connection = connection
        # kfp may print a request to sign in; its other output is of no use.
        output = sys.stderr if connection.context.iap_client_id else io.StringIO()
        with _private(), _without_environment(), contextlib.redirect_stdout(output):
            self._client = _Client(connection)
        self.multi_user: bool = bool(self._client.health.multi_user)

    def call(self, method: str, **arguments: Any) -> Any:
        """Calls a method of ``kfp.Client``; raises an ApiError."""
        # Redirect only calls that print: a live table writes to stdout at the same time.
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet if method in _PRINTS else contextlib.nullcontext():
            return getattr(self._client, method)(**arguments)

    def pages(self, method: str, field: str, **arguments: Any) -> Iterator[Any]:
        """Yields all entries of a list."""
        token = ""
        while True:
            answer = self.call(method, page_token=token, page_size=_PAGE, **arguments)
            yield from getattr(answer, field) or ()
            token = answer.next_page_token or ""
            if not token:
                return

    def text(self, path: str, **query: str) -> str:
        """The server's answer at a path for which kfp has no method; raises an ApiError."""
        client = self._client._healthz_api.api_client
        headers = {**client.default_headers, **({"Cookie": client.cookie} if client.cookie else {})}
        client.update_params_for_auth(headers, [], ["Bearer"])
        response = client.rest_client.request(
            "GET",
            client.configuration.host + path,
            query_params=[*query.items()],
            headers=headers,
        )
        data: bytes | str = response.data
        return data if isinstance(data, str) else data.decode(errors="replace")

    @property
    def namespace(self) -> str | None:
        """The user's namespace in a multi-user Kubeflow; None in a single-user one."""
        if not self.multi_user:
            return None
        # The second: kfp's setting, or the namespace of this pod.
        namespace = self.connection.context.namespace or self._client.get_user_namespace()
        if not namespace:
            raise UserError(
                "This Kubeflow has several users. Set the namespace of your profile with "
                "--namespace.",
                setting="--namespace",
            )
        return namespace

    @property
    def pods_namespace(self) -> str:
        """Namespace of the runs' pods."""
        return self.namespace or self.connection.context.namespace or "kubeflow"

    @property
    def known_namespace(self) -> str:
        """Namespace of the runs' pods; empty: a user of a multi-user Kubeflow named none."""
        try:
            return self.pods_namespace
        except UserError:
            return ""

    def link(self, path: str) -> str:
        """Address of a page of the user interface; empty if unknown."""
        base = self.connection.context.ui_endpoint or self.connection.context.endpoint
        return f"{base.rstrip('/')}/#/{path}" if base else ""


def name_filter(name: str) -> str:
    """A filter: ``Filter`` in backend/api/v2beta1/filter.proto.

    Quoted twice: the gateway unquotes it, and so does the server (``parseAPIFilter`` in
    apiserver/server/list_request_util.go).
    """
    predicate = {"operation": 1, "key": "display_name", "stringValue": name}  # 1: EQUALS
    return urllib.parse.quote(json.dumps({"predicates": [predicate]}))


class _Client(kfp.Client):
    _context_setting: dict[str, Any]

    def __init__(self, connection: Connection):
        self._connection = connection
        context, token = connection.context, connection.token
        secret = connection.other_client_secret
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "works with 2.0.0-beta.2 and later"
            warnings.filterwarnings("ignore", message="The host .* does not contain")
            super().__init__(
                host=(context.endpoint or "").rstrip("/") or None,
                client_id=context.iap_client_id,
                other_client_id=context.other_client_id,
                other_client_secret=secret.get_secret_value() if secret else None,
                existing_token=token.get_secret_value() if token and context.endpoint else None,
                cookies=connection.cookies.get_secret_value() if connection.cookies else None,
                proxy=context.proxy,
                ssl_ca_cert=context.ca_file,
                kube_context=context.kube_context,
                ui_host=context.ui_endpoint,
                verify_ssl=context.verify_tls,
            )
        self.health = self.get_kfp_healthz()

    def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
        """Asks once; kfp's constructor makes this call first."""
        if not hasattr(self, "health"):
            client = self._healthz_api.api_client
            nowhere = kfp_server_api.Configuration().host
            if not self._connection.context.endpoint and client.configuration.host == nowhere:
                raise UserError(
                    "The address of Kubeflow Pipelines is unknown. Set --endpoint ADDRESS, or name "
                    "a context with --context. Without either, run this command in the cluster, "
                    "or on a machine where kubectl reaches the cluster.",
                    setting="--endpoint",
                )
            self._set_token(client.configuration)
            _guard(client.rest_client, self._connection)
            self.health = super().get_kfp_healthz(sleep_duration)
        return self.health

    def get_experiment(
        self,
        experiment_id: str | None = None,
        experiment_name: str | None = None,
        namespace: str | None = None,
    ) -> Any:
        """Finds an experiment as kfp does, also with a plus or a percent sign: see name_filter."""
        if experiment_name is not None:
            experiment_name = urllib.parse.quote(json.dumps(experiment_name)[1:-1])
        return super().get_experiment(experiment_id, experiment_name, namespace)

    def _load_context_setting_or_default(self) -> None:
        """Reads only the namespace of kfp's settings: its cookies belong to an unknown server."""
        super()._load_context_setting_or_default()
        self._context_setting = {"namespace": self._context_setting.get("namespace", "")}

    def _set_token(self, configuration: Any) -> None:
        connection, here = self._connection, self._IN_CLUSTER_DNS_NAME.format("kubeflow")
        # Through kubectl's configuration, the cluster requires a token of its own.
        if connection.token and (connection.context.endpoint or configuration.host == here):
            configuration.api_key["authorization"] = connection.token.get_secret_value()
            configuration.api_key_prefix["authorization"] = "Bearer"
            configuration.refresh_api_key_hook = (
                self._renew_token if connection.renewed_token else None
            )

    def _renew_token(self, configuration: Any) -> None:
        try:
            token = connections.read(str(self._connection.renewed_token), "token_file")
        except UserError as error:  # the file may be back in a moment
            raise errors.ApiError(str(error)) from None
        configuration.api_key["authorization"] = token.get_secret_value()


def _guard(rest: Any, connection: Connection) -> None:
    """Gives each request a timeout, and each failure a message."""
    plain = rest.request
    seconds = connection.context.timeout_seconds
    # Each retry would start the timeout again; callers retry themselves.
    once = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=5)
    rest.pool_manager.connection_pool_kw["retries"] = once
    if not connection.context.verify_tls:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def request(method: str, url: str, **options: Any) -> Any:
        options["_request_timeout"] = (seconds, seconds)
        try:
            response = plain(method, url, **options)
        except kfp_server_api.ApiException as error:
            if not error.status:  # of TLS
                raise errors.unreachable(connection, url, error) from None
            raise errors.refused(
                connection, url, error.status, error.body, options.get("headers")
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise errors.unreachable(connection, url, error) from None
        # kfp turns a web page into an object without fields.
        if "html" in (response.getheader("Content-Type") or "").lower():
            raise errors.no_api(url)
        return response

    rest.request = request


@contextlib.contextmanager
def _without_environment() -> Iterator[None]:
    """Hides kfp's environment variables, which would fill in what a context lacks."""
    names = [*connections.KFP.values(), connections.KFP_SECRET]
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Makes files that kfp writes, such as a refresh token, readable by this user alone."""
    before = os.umask(0o077)
    try:
        credentials = pathlib.Path(auth.LOCAL_KFP_CREDENTIAL)
        if credentials.exists():  # from a kfp that left it readable
            credentials.chmod(0o600)
        yield
    finally:
        os.umask(before)
