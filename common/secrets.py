"""Recognizes secrets, and redacts them from text and settings.

A secret is recognized by its name (``AWS_SECRET_ACCESS_KEY``, ``--password``), by its place in an
address (``https://user:password@host``, ``?X-Amz-Signature=…``), or by its form (a private key, a
token of a known service). Other secrets are not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from stagecraft.common.errors import UserError

LEFT_OUT = "…"  # replaces a secret
_LEAST = 4  # least characters of a secret that is searched in text
_WORDS = (
    "secret|passw(?:or)?d|passphrase|credential|signature|api[_-]?key|access[_-]?key|"
    "private[_-]?key|account[_-]?key|signing[_-]?key|connection[_-]?string|authorization|"
    "tokens?(?![a-z])"
)
_NAME = rf"[\w.-]{{0,64}}?(?:{_WORDS})[\w.-]{{0,64}}"
_SHORT = "auth|pat|pwd|pw|sas|sig"

_SECRET_NAME = re.compile(rf"(?:{_NAME}|{_SHORT})", re.IGNORECASE)
_PLACE_NAME = re.compile(
    r".*[_-](?:file|path|dir|folder|name)|google_application_credentials", re.IGNORECASE
)
"""Names of settings that locate a secret but do not contain it."""

_PASSWORD = r"://[^/?#@:\s\"<>]{0,256}:(?!\d{1,5}(?:[/?#]|$))[^@\s\"<>]{0,512}@"
_USER = r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://[^/?#@\s\"<>]{1,256}@"
_USER_INFO = re.compile(f"{_PASSWORD}|{_USER}", re.IGNORECASE)
"""RFC 3986, 3.2.1; and keys of AWS, which may hold a slash. Azure's addresses are
``abfs://container@account``."""

_QUERY = re.compile(rf"([?&;](?:{_NAME}|{_SHORT}|key)=)(?!{LEFT_OUT})[^&;#\s\"'<>]+", re.IGNORECASE)
_ASSIGNED = re.compile(rf"(?<![\w.-])({_NAME}=)(?!{LEFT_OUT})[^\s\"',;]+", re.IGNORECASE)
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-|AIza)[\w-]{20,}"
    r"|(?<=\bBearer )[\w.~+/=-]{8,}",
    re.DOTALL,
)


class SecretInAddress(UserError, ValueError):
    """An address that contains user and password, or a signature."""

    def __init__(self, address: str, advice: str) -> None:
        redacted = redact(address)
        what = "user and password" if has_user_info(address) else "signature"
        super().__init__(
            f"{redacted}: expected no {what} in a URI; {advice}", value=redacted, suggestion=advice
        )


def refuse_in_address(address: str, advice: str) -> None:
    """Refuses an address that contains credentials; any other text passes."""
    if has_user_info(address) or ("://" in address and _QUERY.search(address)):
        raise SecretInAddress(address, advice)


def has_user_info(address: str) -> bool:
    """Whether an address has a user, or a user and a password, before its host."""
    return _USER_INFO.search(address) is not None


def is_secret_name(name: str) -> bool:
    """Whether a name is that of a secret: ``HF_TOKEN`` is, ``token_file`` is not."""
    name = name.strip("-")
    return bool(_SECRET_NAME.fullmatch(name)) and not _PLACE_NAME.fullmatch(name)


def is_secret(name: str, value: str) -> bool:
    """Whether a named value is or contains a secret."""
    return bool(value) and (is_secret_name(name) or redact(value) != value)


def redact(text: str) -> str:
    """Text, such as a message, without its secrets."""
    text = _USER_INFO.sub(f"://{LEFT_OUT}@", text)
    text = _QUERY.sub(rf"\g<1>{LEFT_OUT}", text)
    text = _ASSIGNED.sub(_assigned, text)
    return _FORMS.sub(LEFT_OUT, text)


_BY_VALUE = ("loss", "loss_args", "loss_weights", "optimizer_args", "schedule_args")
"""Settings whose keys name outputs, weights and arguments: ``tokens`` is no secret there."""


def redact_tree(value: Any, name: str = "") -> Any:
    """A copy of settings; values of secret names are replaced, other text by :func:`redact`."""
    if isinstance(value, Mapping):
        by_value = name in _BY_VALUE
        return {
            key: redact_tree(item, name if by_value else str(key)) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return list(redact_arguments(value))
    if isinstance(value, str):
        return LEFT_OUT if value and is_secret_name(name) else redact(value)
    return value


def redact_yaml(text: str) -> str:
    """A YAML document without its secrets; unchanged if it has none."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return redact(text)
    if not isinstance(tree, (dict, list)):
        return redact(text)
    left = redact_tree(tree)
    return text if left == tree else yaml.safe_dump(left, sort_keys=False, allow_unicode=True)


def redact_arguments(arguments: Iterable[Any], *, all_values: bool = False) -> Iterator[Any]:
    """Arguments without secrets, also ``b`` in ``--secret b``; ``all_values``: of all options."""
    before = ""
    for argument in arguments:
        if not isinstance(argument, str):
            yield redact_tree(argument)
            continue
        option, equals, value = argument.partition("=")
        is_option = argument.startswith("-")
        if is_option and equals:
            hidden = all_values or is_secret(option, value)
            yield f"{option}={LEFT_OUT}" if hidden else argument
        elif is_option:
            yield argument
        else:
            hidden = all_values or is_secret_name(before)
            yield LEFT_OUT if hidden and argument else redact(argument)
        before = argument if is_option and not equals else ""


def replacements(arguments: Sequence[str]) -> dict[str, str]:
    """Replacements for a command's arguments in logs.

    Returns:
        Each argument with a value -> the argument without it. Values of secret names and long
        values are keys of their own. Short values are not: they occur in many other words.
    """
    found = {}
    before = ""
    hidden = redact_arguments(arguments, all_values=True)
    for argument, shown in zip(arguments, hidden, strict=True):
        option, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            least = _LEAST if is_secret_name(before) else 2 * _LEAST
            if len(argument) >= least:
                found[argument] = shown
        elif equals:
            found[argument] = shown
            if is_secret(option, value) and len(value) >= _LEAST:
                found[value] = LEFT_OUT
        before = argument
    return found


def is_left_out(value: str) -> bool:
    """Whether a secret was redacted from this text."""
    return value == LEFT_OUT or bool(re.search(rf"={LEFT_OUT}|://{LEFT_OUT}@", value))


def _assigned(match: re.Match[str]) -> str:
    return f"{match[1]}{LEFT_OUT}" if is_secret_name(match[1][:-1]) else match[0]
