"""``stagecraft kubeflow contexts``, and which connection and credentials count."""

import json
import pathlib
import stat

import pytest

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.client.connection import resolve

AT, ELSEWHERE = "http://a.example", "http://b.example"


@pytest.fixture
def file(home):
    return home / ".config" / "stagecraft" / "contexts.yaml"


@pytest.fixture
def tokens(tmp_path):
    """Files with tokens, by token."""
    files = {}
    for token in ("token-a", "token-b"):
        (tmp_path / token).write_text(f"{token}\n")
        files[token] = str(tmp_path / token)
    return files


def secret(connection):
    return connection.token.get_secret_value() if connection.token else None


def test_contexts_are_kept(command, file):
    empty = command("contexts", "list", "--json")
    assert json.loads(empty.stdout) == {"current": None, "contexts": {}}
    command("contexts", "set", "a", "--endpoint", AT, "-n", "team")
    assert command("contexts", "set", "b", "--insecure", "--timeout", 5).output == "b: set.\n"
    assert command("contexts", "list").stdout.splitlines() == [
        "   NAME  ENDPOINT          NAMESPACE",
        f"*  a     {AT}  team",
        "   b     (from kubectl)",
    ]
    assert command("contexts", "set", "a", "--endpoint", ELSEWHERE).exit_code == 0
    assert command("contexts", "use", "b").exit_code == 0
    assert json.loads(command("contexts", "list", "--json").stdout) == {
        "current": "b",
        "contexts": {
            "a": {"endpoint": ELSEWHERE, "namespace": "team"},
            "b": {"verify_tls": False, "timeout_seconds": 5.0},
        },
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["contexts.yaml"]
    assert command("contexts", "delete", "b").exit_code == 0
    assert json.loads(command("contexts", "list", "--json").stdout)["current"] is None
    again = command("contexts", "delete", "b")
    assert again.exit_code == 1 and "context: b" in again.stderr
    assert "context: c" in command("contexts", "use", "c").stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("a", "--endpoint", "http://me:secret@host.example"), 1),
        (("a", "--endpoint", "me:secret@host.example"), 1),
        (("a", "--endpoint", "ftp://me:secret@host"), 1),
        (("a", "--endpoint", "https://host/?token=secret"), 1),
        (("a", "--proxy", "http://me:secret@proxy:3128"), 1),
        (("a", "--proxy", "me:secret@proxy:3128"), 1),
        (("a", "--endpoint", "ht tp://x"), 1),
        (("a", "--token-file", "-"), 1),
        (("a", "--timeout", "inf"), 2),
        (("",), 2),
    ],
)
def test_errors_of_set(command, file, words, code):
    done = command("contexts", "set", *words)
    assert done.exit_code == code and "secret" not in done.output
    assert words[:1] == ("",) or words[1].removeprefix("--") in done.output
    assert not file.exists()


def test_files_of_a_context_are_found_from_everywhere(command, tokens, monkeypatch):
    monkeypatch.chdir(pathlib.Path(tokens["token-a"]).parent)
    words = ("contexts", "set", "a", "--endpoint", AT, "--token-file", "token-a")
    assert command(*words).exit_code == 0
    monkeypatch.chdir("cwd")
    assert secret(resolve({})) == "token-a"
    given = json.loads(command("contexts", "list", "--json").stdout)["contexts"]["a"]
    assert given["token_file"] == tokens["token-a"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "contexts: {a: {endpoit: x}}",
        "contexts: {a: {timeout_seconds: 0}}",
        "contexts: {a: {ui_endpoint: 'https://me:pw@h'}}",
        "current: a\ncurrent: b\n",
        "[" * 20_000,
        "- 1",
        "\udcff",
    ],
    ids=range(8),
)
def test_a_wrong_file(command, file, text):
    file.parent.mkdir(parents=True)
    file.write_text(text, errors="surrogateescape")
    error = json.loads(command("contexts", "list", "--json").stdout)["error"]
    for words in (("contexts", "list"), ("contexts", "set", "b"), ("runs", "list")):
        done = command(*words)
        assert (done.exit_code, done.stderr) == (1, f"Error: {error}\n")
    assert file.read_text(errors="surrogateescape") == text


def test_where_the_file_is(command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    command("contexts", "set", "a")
    assert (tmp_path / "xdg" / "stagecraft" / "contexts.yaml").exists()
    monkeypatch.setenv("STAGECRAFT_CONTEXTS", str(tmp_path / "mine.yaml"))
    command("contexts", "set", "b")
    assert json.loads(command("contexts", "list", "--json").stdout)["current"] == "b"
    monkeypatch.setenv("STAGECRAFT_CONTEXTS", str(tmp_path / "mine.yaml" / "no-folder"))
    done = command("contexts", "set", "c")
    assert done.exit_code == 1 and "cannot be" in done.stderr


# What was given: options; a context by option and by environment; the environment's endpoint and
# token; whether there is a current context. What counts: endpoint and token.
@pytest.mark.parametrize(
    ("options", "named", "environment", "current", "expected"),
    [
        ({}, None, {}, True, (AT, "token-a")),
        ({}, None, {}, False, (None, None)),
        ({}, "a", {}, False, (AT, "token-a")),
        ({}, None, {"CONTEXT": "a"}, False, (AT, "token-a")),
        # The environment's endpoint, before the current context, and without its token.
        ({}, None, {"ENDPOINT": ELSEWHERE}, True, (ELSEWHERE, None)),
        ({}, None, {"ENDPOINT": ELSEWHERE, "TOKEN": "env"}, True, (ELSEWHERE, "env")),
        ({}, None, {"TOKEN": "env"}, True, (AT, "env")),
        # A context that is named is meant, with its own token or none.
        ({}, "a", {"ENDPOINT": ELSEWHERE, "TOKEN": "env"}, False, (AT, "token-a")),
        ({}, "bare", {"ENDPOINT": ELSEWHERE, "TOKEN": "env"}, True, (ELSEWHERE + "/bare", None)),
        ({}, None, {"CONTEXT": "bare", "TOKEN": "env"}, True, (ELSEWHERE + "/bare", None)),
        # An endpoint that is given gets no token of a context that nobody named with it.
        ({"endpoint": ELSEWHERE}, None, {}, True, (ELSEWHERE, None)),
        ({"endpoint": ELSEWHERE}, None, {"CONTEXT": "a"}, True, (ELSEWHERE, None)),
        ({"endpoint": ELSEWHERE}, "a", {}, False, (ELSEWHERE, "token-a")),
        ({"endpoint": ELSEWHERE, "token_file": "token-b"}, None, {}, True, (ELSEWHERE, "token-b")),
        ({"endpoint": ELSEWHERE}, None, {"TOKEN": "env"}, True, (ELSEWHERE, "env")),
        ({"token_file": "token-b"}, None, {"TOKEN": "env"}, True, (AT, "token-b")),
        ({"token_file": "token-b"}, "a", {"TOKEN": "env"}, True, (AT, "token-b")),
    ],
)
def test_what_counts(command, tokens, monkeypatch, options, named, environment, current, expected):
    command("contexts", "set", "a", "--endpoint", AT, "--token-file", tokens["token-a"])
    command("contexts", "set", "bare", "--endpoint", ELSEWHERE + "/bare")
    if not current:
        command("contexts", "set", "gone")
        command("contexts", "use", "gone")
        command("contexts", "delete", "gone")
    for name, value in environment.items():
        prefix = "KF_PIPELINES_" if name == "ENDPOINT" else "STAGECRAFT_KUBEFLOW_"
        monkeypatch.setenv(prefix + name, value)
    if "token_file" in options:
        options = {**options, "token_file": tokens[options["token_file"]]}
    connection = resolve(options, named)
    assert (connection.context.endpoint, secret(connection)) == expected


def test_another_endpoint_gets_none_of_the_environments_client_ids(monkeypatch):
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", AT)
    monkeypatch.setenv("KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", "id")
    assert resolve({}).context.iap_client_id == "id"
    assert resolve({"endpoint": AT}).context.iap_client_id == "id"
    assert resolve({"endpoint": ELSEWHERE}).context.iap_client_id is None
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    assert resolve({"endpoint": ELSEWHERE}).context.iap_client_id == "id"


def test_a_secret_is_in_no_repr(tokens):
    connection = resolve({"token_file": tokens["token-a"], "cookies_file": tokens["token-b"]})
    assert "token-a'" not in repr(connection.token) and "token-b" not in repr(connection.cookies)
    assert connection.redact("Bearer token-a; is token-b") == "Bearer …; is …"


@pytest.mark.parametrize(
    "text", [None, b"", b"a\nb", b"\xff"], ids=["missing", "empty", "two lines", "binary"]
)
def test_a_wrong_token_file(tmp_path, text):
    if text is not None:
        (tmp_path / "token").write_bytes(text)
    with pytest.raises(UserError) as caught:
        resolve({"token_file": str(tmp_path / "token")})
    assert caught.value.setting == "token_file"
