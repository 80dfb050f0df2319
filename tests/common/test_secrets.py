"""What counts as a secret, and text without it."""

from __future__ import annotations

import pytest

from stagecraft.common import secrets
from stagecraft.common.errors import UserError

SECRET = "c4n4ry"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"s3://key:{SECRET}@bucket/x", "s3://…@bucket/x"),
        (f"s3://AKIA:{SECRET}/with/slashes@bucket/x", "s3://…@bucket/x"),
        (f"https://{SECRET}@host:80/x?a=1", "https://…@host:80/x?a=1"),
        (f"at HTTPS://me:{SECRET}@host, again", "at HTTPS://…@host, again"),
        (f"https://h/x?X-Amz-Signature={SECRET}&part=2", "https://h/x?X-Amz-Signature=…&part=2"),
        (f"https://h/x?a=1&X-Goog-Signature={SECRET}", "https://h/x?a=1&X-Goog-Signature=…"),
        (f"https://h/x?sv=1&sig={SECRET}%3D", "https://h/x?sv=1&sig=…"),
        (f"https://h/x?token={SECRET}: refused", "https://h/x?token=… refused"),
        (f"https://h/x?AWSAccessKeyId={SECRET}", "https://h/x?AWSAccessKeyId=…"),
        (f"--s3_secret_access_key={SECRET}", "--s3_secret_access_key=…"),
        (f"AWS_SESSION_TOKEN={SECRET} PGPASSWORD={SECRET}", "AWS_SESSION_TOKEN=… PGPASSWORD=…"),
        (f"Authorization: Bearer {SECRET}-{SECRET}", "Authorization: Bearer …"),
        ("key AKIAIOSFODNN7EXAMPLE is", "key … is"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.c2ln", "…"),
        (f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\nx", "…\nx"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}", "…"),
    ],
)
def test_secrets_are_left_out(text: str, left: str) -> None:
    assert secrets.redact(text) == left
    assert secrets.redact(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/models@2x/a:b",
        "http://host:8080/people@home",
        "abfs://container@account.dfs.core.windows.net/x",
        "write to user@example.com",
        "train.steps=500 and train.seed=3",
        "TOKENIZERS_PARALLELISM=false",
        "token_file=/run/token",
        "https://host/x?page=2&keyword=cat",
        "registry/image@sha256:0123456789abcdef",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert secrets.redact(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("HF_TOKEN", True),
        ("PGPASSWORD", True),
        ("--s3_session_token", True),
        ("clientSecret", True),
        ("WANDB_API_KEY", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", False),
        ("token_file", False),
        ("key", False),
        ("NCCL_DEBUG", False),
    ],
)
def test_names(name: str, expected: bool) -> None:
    assert secrets.is_secret_name(name) is expected


def test_a_tree() -> None:
    tree = {
        "env": {"HF_TOKEN": SECRET, "PROXY": f"http://me:{SECRET}@proxy", "LEVEL": "info"},
        "args": ["--password", SECRET, f"--x_token={SECRET}", "--master=host:1"],
        "secrets": [{"name": "a", "key": "b", "env": "C"}],
        "steps": 3,
        "empty_token": "",
    }
    assert secrets.redact_tree(tree) == tree | {
        "env": {"HF_TOKEN": "…", "PROXY": "http://…@proxy", "LEVEL": "info"},
        "args": ["--password", "…", "--x_token=…", "--master=host:1"],
    }


def test_all_values_of_arguments() -> None:
    given = ["--a=1", "--b", "2", "--c", "--d=3"]
    left = list(secrets.redact_arguments(given, all_values=True))
    assert left == ["--a=…", "--b", "…", "--c", "--d=…"]


def test_a_yaml_document() -> None:
    plain = "name: x\ntrain:\n  steps: 3  # few\n"
    assert secrets.redact_yaml(plain) == plain
    assert secrets.redact_yaml(f"name: x\napi_key: {SECRET}\n") == "name: x\napi_key: …\n"
    assert SECRET not in secrets.redact_yaml(f"[: https://me:{SECRET}@host")


@pytest.mark.parametrize(
    ("address", "what", "shown"),
    [
        (f"s3://key:{SECRET}@host/x", "user and password", "s3://…@host/x"),
        (f"https://host/x?sig={SECRET}", "signature", "https://host/x?sig=…"),
    ],
)
def test_an_address_with_credentials_is_refused(address: str, what: str, shown: str) -> None:
    with pytest.raises(secrets.SecretInAddress) as refused:
        secrets.refuse_in_address(address, "use a file")
    assert (refused.value.value, refused.value.suggestion) == (shown, "use a file")
    assert isinstance(refused.value, UserError)
    assert f"no {what}" in str(refused.value)


@pytest.mark.parametrize("address", ["s3://bucket/x", "/data/sig=1?sig=2", "sample", ""])
def test_other_addresses_pass(address: str) -> None:
    secrets.refuse_in_address(address, "use a file")


@pytest.mark.parametrize(
    "text", ["://a:" * 50_000, "secret" * 50_000, "a-" * 100_000, "?a" * 100_000, "token=" * 50_000]
)
@pytest.mark.timeout(20)
def test_no_text_takes_long(text: str) -> None:
    assert len(secrets.redact(text)) <= len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("…", True), ("--x=…", True), ("http://…@h", True), ("a … b", False), ("", False)],
)
def test_what_was_left_out_is_recognised(text: str, expected: bool) -> None:
    assert secrets.is_left_out(text) is expected
