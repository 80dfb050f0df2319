"""Object stores: which URIs the backend can use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding

SCHEMES = ("gs://", "s3://", "minio://")
"""mem:// passes as well, and is for the backend's own tests."""

_BUCKET = re.compile(r"([a-z][a-z0-9]+:///?)([^/?]+)(/[^?]*)?(\?.+)?")


def problem(uri: str) -> str:
    """Why the backend could not use a URI; empty if it could.

    As ParseBucketPathToConfig of backend/src/v2/objectstore/config.go.
    """
    found = _BUCKET.fullmatch(uri)
    if found is None:
        return f"{uri!r} is no URI of a bucket"
    if found[1] not in SCHEMES:
        return f"{uri!r} is in no store that it knows ({', '.join(SCHEMES)})"
    return ""


def check(spec: dict[str, Any]) -> Iterator[Finding]:
    """The pipeline root, if the spec names one.

    The backend itself does not read this one: a run's own root counts, or the launcher's
    configuration. Its user interface fills the run's root in from here.
    """
    root = spec.get("defaultPipelineRoot", "")
    if root and (found := problem(root)):
        yield Finding(
            "pipeline-root",
            "defaultPipelineRoot",
            f"A run with this root fails at its first driver: {found}.",
            "Use a gs://, s3:// or minio:// URI, or leave it out for the cluster's own.",
            "backend/src/v2/objectstore/config.go ParseBucketPathToConfig",
        )
