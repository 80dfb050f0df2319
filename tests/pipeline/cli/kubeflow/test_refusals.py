"""What goes wrong is told in a sentence that names what to do."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result
from kfp_server import Server, serving

Command = Callable[..., Result]
LIST = ("runs", "list")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving("2.16") as server:
        yield server


def refused(done: Result) -> str:
    """What was told, on stderr alone."""
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr
    return done.stderr


def test_401(server: Server, ask: Command) -> None:
    server.require(token="secret-token")
    said = refused(ask(*LIST))
    assert "401: Unauthorized. No credentials that it takes: give --token-file" in said
    server.heal()
    server.require(token="secret-token", sign_in_page=True)
    said = refused(ask(*LIST))
    assert "answered with a web page. Either it wants a sign-in: give --cookies-file" in said
    body = '{"error": "Request not authenticated", "code": 16, "message": "no identity"}'
    server.require()
    server.fail("GET", "/healthz", status=401, body=body, content_type="application/json")
    assert "401: no identity. No credentials" in refused(ask(*LIST))


def test_403_of_istio(server: Server, ask: Command) -> None:
    server.require(token="secret-token", istio=True)
    said = refused(ask(*LIST))
    assert "403: RBAC: access denied. These credentials may not do that: ask who runs" in said


def test_403_of_kubeflow(command: Command) -> None:
    with serving("2.5", multi_user=True) as server:
        said = refused(command(*LIST, "--endpoint", server.url, "-n", "foreign"))
    assert "403: Failed to list runs" in said
    assert "may not do that in namespace foreign" in said
    assert command(*LIST, "-n", "x", "--endpoint", server.url, "--json").stdout.startswith('{"err')


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>404</html>", "text/html"),
        ("404 page not found\n", "text/plain"),
        ("Not Found\n", "text/plain"),
        ("", "text/plain"),
    ],
)
def test_nothing_of_kubeflow_is_there(server: Server, ask: Command, body: str, kind: str) -> None:
    server.fail("GET", "/healthz", status=404, body=body, content_type=kind)
    said = refused(ask(*LIST))
    assert "404, and not from Kubeflow Pipelines 2: its address is often the" in said
    assert "cluster's with /pipeline at the end" in said


def test_a_page_for_people_is_no_answer(server: Server, ask: Command) -> None:
    server.fail("GET", "/healthz", status=200, body="<html>Hello", content_type="text/html")
    assert "Or Kubeflow Pipelines is at another address" in refused(ask(*LIST))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (429, "429: no. It asks to come more slowly: try again in a minute."),
        (500, "500: no. The server failed: try again; if it stays so, look at the log of"),
        (503, "503: no. The server failed"),
        (400, "400: no."),
    ],
)
def test_other_refusals(server: Server, ask: Command, status: int, said: str) -> None:
    server.fail("GET", "/runs", status=status, body="no")
    assert said in refused(ask(*LIST))


def test_no_answer(server: Server, ask: Command) -> None:
    server.hang("/healthz", times=1)
    said = refused(ask(*LIST, "--timeout", "0.2"))
    assert "no answer within 0.2 s; give it longer by --timeout, or look at the network." in said
    server.drop("/healthz")
    assert "the connection broke (" in refused(ask(*LIST))
    assert ask(*LIST, "--timeout", 0).exit_code == 2


def test_nobody_listens(command: Command) -> None:
    with contextlib.closing(socket.socket()) as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address in (f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"):
            said = refused(command(*LIST, "--endpoint", address))
            assert f"127.0.0.1:{port}: cannot be reached (" in said
            assert "kubectl port-forward --namespace kubeflow service/ml-pipeline-ui" in said
    said = refused(command(*LIST, "--endpoint", "http://nobody.invalid/pipeline"))
    assert "http://nobody.invalid/pipeline: cannot be reached" in said


@pytest.mark.parametrize("address", ["http://", "http://[", "http://a b", "ftp://host", ":::"])
def test_no_address(command: Command, address: str) -> None:
    refused(command(*LIST, "--endpoint", address, "--timeout", 1))


def test_certificates(command: Command, tmp_path: pathlib.Path) -> None:
    with serving("2.16", tls=True) as server:
        at = (*LIST, "--endpoint", server.url)
        said = refused(command(*at))
        assert "its certificate is not trusted: give the one that signed it by --ca-file" in said
        assert command(*at, "--ca-file", server.certificate).stdout == "No runs.\n"
        taken = command(*at, "--insecure")
        assert (taken.stdout, taken.stderr) == ("No runs.\n", "")
        plain = refused(command(*LIST, "--endpoint", server.url.replace("https", "http")))
        assert "Traceback" not in plain
        said = refused(command(*at, "--ca-file", tmp_path / "none.pem"))
        assert "none.pem: cannot be read: No such file" in said
        (tmp_path / "no.pem").write_text("no certificate")
        assert "no.pem" in refused(command(*at, "--ca-file", tmp_path / "no.pem"))


def test_plain_http_behind_https(server: Server, command: Command) -> None:
    said = refused(command(*LIST, "--endpoint", server.url.replace("http", "https")))
    assert "no TLS connection (" in said and "is it http:// that is served there?" in said


def test_no_endpoint_at_all(command: Command) -> None:
    said = refused(command(*LIST))
    assert "Where is Kubeflow Pipelines? Give --endpoint ADDRESS, name a context by" in said
    said = refused(command(*LIST, "--context", "none"))
    assert "none: no such context" in said and "contexts set none --endpoint" in said
    done = command(*LIST, "--json")
    assert json.loads(done.stdout)["error"] in done.stderr


@pytest.mark.parametrize(
    "text",
    [None, "", "a: [", "- 1", "a: 1", "pipelineInfo: 3", "\x00", "pipelineInfo: {}\nplatforms: 3"],
)
def test_no_pipeline(server: Server, ask: Command, tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "file.yaml"
    if text is not None:
        path.write_text(text)
    for verb in ("create", "update"):
        assert f"{path}: " in refused(ask("pipelines", verb, path))
    assert not any("upload" in request.path for request in server.requests)


def test_findings_are_told_and_nothing_is_uploaded(
    server: Server, ask: Command, tiny: pathlib.Path
) -> None:
    tiny.write_text(tiny.read_text().replace("- say\n", "- sya\n"))
    said = refused(ask("pipelines", "create", tiny))
    assert f"{tiny}: Kubeflow Pipelines would not run this:\n" in said and "sya" in said
    assert not any("upload" in request.path for request in server.requests)
