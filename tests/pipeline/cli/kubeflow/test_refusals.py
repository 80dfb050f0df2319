"""Errors of a cluster: one sentence that names what to do."""

import contextlib
import json
import socket

import pytest
from kfp_server import serving

LIST = ("runs", "list")


@pytest.fixture
def server():
    with serving("2.16") as server:
        yield server


@pytest.fixture
def refused():
    """``refused(done)``: the one message of a command that failed, on stderr alone."""

    def refused(done):
        assert (done.exit_code, done.stdout) == (1, ""), done.output
        assert done.stderr.startswith("Error: ") and "Traceback" not in done.stderr
        return done.stderr

    return refused


def test_401(server, ask, refused):
    server.require(token="secret-token")
    assert "cookies" in refused(ask(*LIST))
    server.heal()
    server.require(token="secret-token", sign_in_page=True)
    assert "answered" in refused(ask(*LIST))
    body = '{"error": "Request not authenticated", "code": 16, "message": "no identity"}'
    server.require()
    server.fail("GET", "/healthz", status=401, body=body, content_type="application/json")
    assert "identity" in refused(ask(*LIST))


def test_403_of_istio(server, ask, refused):
    server.require(token="secret-token", istio=True)
    assert "RBAC" in refused(ask(*LIST))


def test_403_of_kubeflow(command, refused):
    with serving("2.5", multi_user=True) as server:
        assert "administrator" in refused(command(*LIST, "--endpoint", server.url, "-n", "foreign"))
    assert command(*LIST, "-n", "x", "--endpoint", server.url, "--json").stdout.startswith('{"err')


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>404</html>", "text/html"),
        ("404 page not found\n", "text/plain"),
        ("Not Found\n", "text/plain"),
        ("", "text/plain"),
    ],
    ids=range(4),
)
def test_another_server(server, ask, refused, body, kind):
    server.fail("GET", "/healthz", status=404, body=body, content_type=kind)
    assert "404" in refused(ask(*LIST))


def test_a_web_page_is_no_answer(server, ask, refused):
    server.fail("GET", "/healthz", status=200, body="<html>Hello", content_type="text/html")
    assert "answered" in refused(ask(*LIST))


@pytest.mark.parametrize("status", [429, 500, 503, 400])
def test_other_statuses(server, ask, refused, status):
    server.fail("GET", "/runs", status=status, body="no")
    assert f"{status}: no." in refused(ask(*LIST))


def test_no_answer(server, ask, refused):
    server.hang("/healthz", times=1)
    assert "--timeout" in refused(ask(*LIST, "--timeout", "0.2"))
    server.drop("/healthz")
    assert "the connection broke (" in ask(*LIST).stderr
    assert ask(*LIST, "--timeout", 0).exit_code == 2


def test_no_server(command):
    with contextlib.closing(socket.socket()) as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address in (f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"):
            done = command(*LIST, "--endpoint", address)
            assert done.exit_code == 1 and f"127.0.0.1:{port}: " in done.stderr
    done = command(*LIST, "--endpoint", "http://nobody.invalid/pipeline")
    assert done.exit_code == 1 and "http://nobody.invalid/pipeline: " in done.stderr


@pytest.mark.parametrize("address", ["http://", "http://[", "http://a b", "ftp://host", ":::"])
def test_no_address(command, address):
    done = command(*LIST, "--endpoint", address, "--timeout", 1)
    assert (done.exit_code, done.stdout) == (1, "") and "Traceback" not in done.stderr


def test_certificates(command, refused, tmp_path):
    with serving("2.16", tls=True) as server:
        at = (*LIST, "--endpoint", server.url)
        assert "--ca-file" in command(*at).stderr
        assert command(*at, "--ca-file", server.certificate).stdout == "No runs.\n"
        taken = command(*at, "--insecure")
        assert (taken.stdout, taken.stderr) == ("No runs.\n", "")
        plain = command(*LIST, "--endpoint", server.url.replace("https", "http"))
        assert plain.exit_code == 1 and "Traceback" not in plain.stderr
        assert "ca_file" in refused(command(*at, "--ca-file", tmp_path / "none.pem"))
        (tmp_path / "no.pem").write_text("no certificate")
        assert "no.pem" in command(*at, "--ca-file", tmp_path / "no.pem").stderr


def test_plain_http_behind_https(server, command):
    done = command(*LIST, "--endpoint", server.url.replace("http", "https"))
    assert done.exit_code == 1 and "TLS" in done.stderr


def test_no_endpoint_at_all(command, refused):
    assert "--context" in refused(command(*LIST))
    assert "contexts" in refused(command(*LIST, "--context", "none"))
    done = command(*LIST, "--json")
    assert json.loads(done.stdout)["error"] in done.stderr


@pytest.mark.parametrize(
    "text",
    [None, "", "a: [", "- 1", "a: 1", "pipelineInfo: 3", "\x00", "pipelineInfo: {}\nplatforms: 3"],
)
def test_no_pipeline(server, ask, tmp_path, text):
    path = tmp_path / "file.yaml"
    if text is not None:
        path.write_text(text)
    for verb in ("create", "update"):
        done = ask("pipelines", verb, path)
        assert done.exit_code == 1 and f"{path}: " in done.stderr
    assert not any("upload" in request.path for request in server.requests)


def test_findings_are_told_and_nothing_is_uploaded(server, ask, tiny):
    tiny.write_text(tiny.read_text().replace("- say\n", "- sya\n"))
    done = ask("pipelines", "create", tiny)
    assert done.exit_code == 1 and f"{tiny}: " in done.stderr and "sya" in done.stderr
    assert not any("upload" in request.path for request in server.requests)
