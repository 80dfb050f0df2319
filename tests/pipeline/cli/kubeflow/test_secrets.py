"""Tokens and cookies go where they should, and nowhere else."""

import json
import logging
import pathlib
import stat

import pytest
from kfp_server import serving, whole

TOKEN = "header.payload+/" + "x" * 900 + ".signature=="
NEXT = "the-next-token"
COOKIES = "authservice_session=s3cr3t-session; oauth2_proxy=0th3r-s3cr3t"
PARTS = ("header.payload", "x" * 20, "signature==", NEXT, "s3cr3t-session", "0th3r-s3cr3t")
LIST = ("runs", "list")


@pytest.fixture
def server():
    with serving("2.16") as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_told(home, tmp_path, caplog):
    """Not to a log, nor to a file that others can read.

    One logger would tell what a server repeats: kfp_server_api.rest, which shows the bodies of
    answers to whoever turns it on by name; its parent, which kfp sets to WARNING, keeps it off.
    """
    caplog.set_level(logging.DEBUG)
    for name in ("kfp_server_api", "urllib3", "kubernetes", "stagecraft"):
        caplog.set_level(logging.DEBUG, name)
    yield
    for record in caplog.get_records("call"):
        told = f"{record.getMessage()} {record.args}"
        assert not [part for part in PARTS if part in told], record.name
    for path in (*home.rglob("*"), *(tmp_path / "cwd").rglob("*")):
        if path.is_file() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            assert not [part for part in PARTS if part in path.read_text()], path


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def cookies_file(tmp_path):
    path = tmp_path / "cookies"
    path.write_text(COOKIES + "\n")
    return path


@pytest.fixture
def credentials(token_file, cookies_file):
    return ("--token-file", token_file, "--cookies-file", cookies_file)


def silent(done):
    assert not [part for part in PARTS if part in done.output], done.output
    return done


def sent(server, header):
    return {request.headers.get(header) for request in server.requests}


def test_a_token_of_a_file_or_standard_input_or_the_environment(
    server, ask, command, token_file, monkeypatch
):
    server.require(token=TOKEN)
    assert silent(ask(*LIST, "--token-file", token_file)).exit_code == 0
    at = (*LIST, "--endpoint", server.url, "--token-file", "-")
    assert silent(command(*at, stdin=TOKEN + "\n")).exit_code == 0
    monkeypatch.setenv("STAGECRAFT_KUBEFLOW_TOKEN", TOKEN)
    assert silent(ask(*LIST)).exit_code == 0
    assert sent(server, "Authorization") == {f"Bearer {TOKEN}"}
    assert sent(server, "Cookie") == {None}


def test_cookies(server, ask, cookies_file, monkeypatch):
    server.require(cookie="authservice_session=s3cr3t-session", sign_in_page=True)
    assert silent(ask(*LIST, "--cookies-file", cookies_file)).exit_code == 0
    monkeypatch.setenv("STAGECRAFT_KUBEFLOW_COOKIES", COOKIES)
    assert silent(ask(*LIST)).exit_code == 0
    assert sent(server, "Cookie") == {COOKIES}
    assert sent(server, "Authorization") == {None}


def test_a_token_that_is_renewed_during_a_watch(server, ask, token_file, uploaded):
    server.require(token=TOKEN)

    def renew(run):
        server.require(token=NEXT)
        token_file.write_text(NEXT)
        # Even the new one is not told when the server repeats it.
        server.fail("GET", "/runs/", status=500, body=f"what is Bearer {NEXT}?")

    server.play(renew, *whole("say", "after"))
    done = silent(ask("runs", "create", "tiny", "--watch", "--token-file", token_file))
    assert done.exit_code == 0, done.output
    assert "500: what is Bearer …?" in done.stderr


def test_a_token_file_that_is_empty_for_a_moment(server, ask, token_file, uploaded, monkeypatch):
    from stagecraft.pipeline.kubeflow.client.runs import Patience

    server.require(token=TOKEN)
    patience = Patience.__init__

    def init(self, on_hiccup):
        def sleep(seconds):
            return token_file.write_text(TOKEN)

        patience(self, on_hiccup, sleep)

    monkeypatch.setattr(Patience, "__init__", init)
    steps = whole("say", "after")
    server.play(lambda run: token_file.write_text("") and None, *steps)
    done = silent(ask("runs", "create", "tiny", "--watch", "--token-file", token_file))
    assert done.exit_code == 0, done.output
    assert "token_file: " in done.stderr and "one line" in done.stderr


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500])
@pytest.mark.parametrize("cut", [0, 595])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_server_that_repeats_what_it_was_sent(server, ask, credentials, status, cut, as_json):
    body = json.dumps({"code": 3, "message": f"{'.' * cut} Bearer {TOKEN} and {COOKIES}"})
    server.fail("GET", "/runs", status=status, body=body, content_type="application/json")
    done = silent(ask(*LIST, *credentials, *as_json))
    assert done.exit_code == 1 and f"{status}: " in done.stderr


@pytest.mark.parametrize("fault", ["hang", "drop", "sign-in", "istio", "plain", "tls", "nobody"])
def test_other_failures(server, command, credentials, fault):
    url = server.url
    if fault == "hang":
        server.hang("/healthz")
    elif fault == "drop":
        server.drop("/healthz")
    elif fault == "tls":
        url = url.replace("http", "https")
    elif fault == "nobody":
        url = "http://127.0.0.1:1"
    else:
        named = {"sign-in": {"sign_in_page": True}, "istio": {"istio": True}}.get(fault, {})
        server.require(token="other", **named)
    done = silent(command(*LIST, *credentials, "--endpoint", url, "--timeout", "0.2"))
    assert done.exit_code == 1


def test_a_redirect_to_another_host_gets_nothing(server, ask, credentials):
    with serving("2.16") as other:
        where = [("Location", f"{other.url}/apis/v2beta1/healthz")]
        server.fail("GET", "/healthz", status=302, headers=where)
        silent(ask(*LIST, *credentials))
        assert sent(other, "Authorization") == sent(other, "Cookie") == {None}


def test_kfps_own_settings_go_nowhere(server, command, home, monkeypatch):
    """Kfp would send all of this to any server."""
    import kfp.client.auth

    def token(*given):
        raise AssertionError("asked Google for a token")

    monkeypatch.setattr(kfp.client.auth, "get_auth_token", token)
    kept = home / ".config" / "kfp" / "context.json"
    kept.parent.mkdir(parents=True)
    settings = {
        "namespace": "team",
        "client_authentication_cookie": COOKIES,
        "client_authentication_header_name": "Authorization",
        "client_authentication_header_value": f"Bearer {NEXT}",
    }
    kept.write_text(json.dumps(settings))
    kept.chmod(0o600)
    assert command("contexts", "set", "a", "--endpoint", server.url).exit_code == 0
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "http://elsewhere.invalid")
    monkeypatch.setenv("KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", "id")
    monkeypatch.setenv("KF_PIPELINES_APP_OAUTH2_CLIENT_SECRET", "app-secret")
    assert silent(command(*LIST, "--context", "a")).exit_code == 0
    assert sent(server, "Authorization") == sent(server, "Cookie") == {None}
    command("contexts", "set", "nowhere", "-n", "x")
    assert "--endpoint" in command(*LIST, "--context", "nowhere").stderr


def test_what_kfp_keeps_is_for_its_owner_alone(server, command, home, monkeypatch):
    """A sign-in leaves a refresh token in a file; ones of before are closed, too."""
    import kfp.client.auth

    kept = pathlib.Path(kfp.client.auth.LOCAL_KFP_CREDENTIAL)

    def sign_in(*given):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"id": {"refresh_token": NEXT}}))
        return TOKEN, True

    monkeypatch.setattr(kfp.client.auth, "get_auth_token", sign_in)
    at = (*LIST, "--endpoint", server.url, "--iap-client-id", "id")
    for _ in range(2):
        assert silent(command(*at)).exit_code == 0
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        kept.chmod(0o644)
    assert silent(command(*at)).exit_code == 0
    assert sent(server, "Authorization") == {f"Bearer {TOKEN}"}
    server.fail("GET", "/healthz", status=500, body=f"Bearer {TOKEN}")
    assert "500: Bearer …." in silent(command(*at)).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--pipeline-root", "s3://key:s3cr3t-session@bucket/x"),
        ("-p", "word=s3://k:s3cr3t-session@b"),
    ],
)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.usefixtures("server", "uploaded")
def test_no_run_is_given_credentials_in_an_address(ask, words, as_json):
    done = silent(ask("runs", "create", "tiny", *words, *as_json))
    assert done.exit_code == 1 and "in a URI" in done.stderr
    assert not json.loads(ask("runs", "list", "--json").stdout)["runs"]
