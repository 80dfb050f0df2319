"""Names that Kubernetes accepts, with the API server's own verdicts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stagecraft.common import kubernetes_syntax
from stagecraft.components.kubernetes.jobs.settings import PodSettings
from stagecraft.pipeline.settings.kubeflow import Step


@pytest.mark.parametrize(
    ("rule", "accepted", "refused"),
    [
        (
            kubernetes_syntax.label,
            ("a", "a-1", "x" * 63),
            ("", "A", "a.b", "a_b", "-a", "a-", "x" * 64),
        ),
        (kubernetes_syntax.job, ("a", "train-1", "x" * 40), ("", "1a", "A", "a-", "a.b", "x" * 41)),
        (kubernetes_syntax.volume_of_claim, ("data",), ("shm", "kfp-launcher", "my.claim")),
        (
            kubernetes_syntax.subdomain,
            ("a.b", "mlpipeline-minio-artifact"),
            ("My_Secret", "a..b", ""),
        ),
        (kubernetes_syntax.config_key, ("key.name", "KEY_NAME", ".x"), ("k/ k", "", "..", "..x")),
        (kubernetes_syntax.variable, ("A", "a b", "a.b"), ("", "a=b", "ü", "a\n")),
        (
            kubernetes_syntax.label_key,
            ("gpu", "cloud.google.com/gke-accelerator"),
            ("a b", "", "A/b/c", "_a"),
        ),
        (kubernetes_syntax.label_value, ("", "a100", "A_b.c"), ("c d", "-a", "x" * 64)),
        (kubernetes_syntax.sub_path, ("", "a/b", "a..b"), ("/x", "../x", "a/../b")),
        (kubernetes_syntax.image, ("a:1", ""), (" x ", "x\n")),
    ],
)
def test_rules(rule: object, accepted: tuple[str, ...], refused: tuple[str, ...]) -> None:
    assert callable(rule)
    assert [value for value in accepted if rule(value)] == []
    assert [value for value in refused if not rule(value)] == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("volumes", [{"claim": "My_Claim", "path": "/data"}]),
        ("volumes", [{"claim": "data", "path": "/data", "sub_path": "../x"}]),
        ("secrets", [{"name": "My_Secret", "key": "k", "env": "V"}]),
        ("secrets", [{"name": "s", "key": "k/ k", "env": "V"}]),
        ("env", {"a=b": "x"}),
        ("env", {"": "x"}),
        ("node_selector", {"a b": "c"}),
        ("node_selector", {"a": "c d"}),
        ("image", " x "),
        ("timeout_seconds", 2**31),
    ],
)
def test_settings_are_refused_before_a_pod_is(setting: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        Step.model_validate({setting: value})
    assert refused.value.errors()[0]["loc"][0] == setting
    assert setting in {*PodSettings.model_fields, "timeout_seconds"}
