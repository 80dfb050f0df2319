"""The rule for the pipeline root: URIs that the backend supports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding

SCHEMES = ("gs://", "s3://", "minio://")
"""The backend also accepts mem://, for its tests."""

_BUCKET = re.compile(r"([a-z][a-z0-9]+:///?)([^/?]+)(/[^?]*)?(\?.+)?")


def problem(uri: str) -> str:
    """Why the backend cannot use a URI; empty: it can. As ParseBucketPathToConfig."""
    found = _BUCKET.fullmatch(uri)
    if found is None:
        return f"{uri!r} is not the URI of a bucket"
    if found[1] not in SCHEMES:
        return f"{uri!r} is in no supported store ({', '.join(SCHEMES)})"
    return ""


def check(spec: dict[str, Any]) -> Iterator[Finding]:
    """Checks the root of a spec, which the user interface copies to each run."""
    root = spec.get("defaultPipelineRoot", "")
    if root and (found := problem(root)):
        yield Finding(
            "pipeline-root",
            "defaultPipelineRoot",
            f"A run with this root fails at its first driver: {found}.",
            "Use a gs://, s3:// or minio:// URI, or remove it to use the cluster's root.",
            "backend/src/v2/objectstore/config.go ParseBucketPathToConfig",
        )
