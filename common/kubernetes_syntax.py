"""Names and quantities that Kubernetes accepts.

A function for names returns what is wrong with a value, or nothing. Rules:
k8s.io/apimachinery/pkg/util/validation/validation.go and
k8s.io/kubernetes/pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from decimal import Decimal

LARGEST_SECONDS = 2**31 - 1
"""The longest ``activeDeadlineSeconds``."""

TAKEN_VOLUMES = (
    "kfp-launcher",
    "shm",
    "var-run-argo",
    "tmp-dir-argo",
    "argo-staging",
    "input-artifacts",
)
"""Volumes that Argo, the backend and ``shared_memory`` add to a pod."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?"
)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_BINARY = {suffix: 2 ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)}


def label(value: str) -> str:
    """An RFC 1123 label, such as the name of a volume."""
    if len(value) <= 63 and _LABEL.fullmatch(value):
        return ""
    return (
        "is not a name of at most 63 lower-case letters, digits and '-' that begins and ends with "
        "a letter or digit"
    )


def job(value: str) -> str:
    """The name of a training's job and Service: an RFC 1035 label; names of pods add 23 letters."""
    if value[:1].isalpha() and len(value) <= 63 - 23 and not label(value):
        return ""
    return "is not a label of at most 40 characters that begins with a letter"


def volume_of_claim(value: str) -> str:
    """The name of a claim that a step mounts: the driver names the volume like the claim."""
    if value in TAKEN_VOLUMES:
        return "is the name of another volume of the pod"
    return label(value)


def subdomain(value: str) -> str:
    """An RFC 1123 subdomain, such as the name of a Secret."""
    if len(value) <= 253 and _SUBDOMAIN.fullmatch(value):
        return ""
    return "is not a name of at most 253 lower-case letters, digits, '-' and '.'"


def config_key(value: str) -> str:
    """A key in a Secret or ConfigMap."""
    if _KEY.fullmatch(value) and value not in (".", "..") and not value.startswith(".."):
        return ""
    return "is not a key of at most 253 letters, digits, '-', '_' and '.'"


def variable(value: str) -> str:
    """An environment variable."""
    if value and value.isascii() and value.isprintable() and "=" not in value:
        return ""
    return "is not a name of printable ASCII characters without '='"


def label_key(value: str) -> str:
    """The key of a label, such as ``cloud.google.com/gke-accelerator``."""
    prefix, slash, name = value.rpartition("/")
    if len(name) <= 63 and _QUALIFIED.fullmatch(name) and (not slash or not subdomain(prefix)):
        return ""
    return "is not the key of a label"


def label_value(value: str) -> str:
    """The value of a label."""
    if not value or (len(value) <= 63 and _QUALIFIED.fullmatch(value)):
        return ""
    return "is not the value of a label"


def sub_path(value: str) -> str:
    """A folder of a volume."""
    if value.startswith("/"):
        return "is not a relative path"
    return "contains '..'" if ".." in value.split("/") else ""


def image(value: str) -> str:
    """A container image."""
    return "has blanks around it" if value != value.strip() else ""


def is_latest(image: str) -> bool:
    """Whether an image has the tag ``latest``, or neither a tag nor a digest, which is the same.

    Kubernetes pulls such an image before each start of a container, also if the node has it:
    https://kubernetes.io/docs/concepts/containers/images/#imagepullpolicy-defaulting
    """
    if "@" in image:
        return False
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or tag == "latest"


def parse_quantity(text: str) -> Decimal | None:
    """The amount, as ParseQuantity of k8s.io/apimachinery; None: Kubernetes cannot parse it."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, suffix = Decimal(found["number"]), found["suffix"] or ""
    if suffix.endswith("i"):
        return number * _BINARY[suffix[0]]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number
