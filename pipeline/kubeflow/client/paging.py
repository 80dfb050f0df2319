"""Reads lists of the server in pages, and filters them by name."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.client.api import Api

_PAGE = 100


def pages(api: Api, method: str, field: str, **arguments: Any) -> Iterator[Any]:
    """Yields all entries of a list."""
    token = ""
    while True:
        answer = api.call(method, page_token=token, page_size=_PAGE, **arguments)
        yield from getattr(answer, field) or ()
        token = answer.next_page_token or ""
        if not token:
            return


def name_filter(name: str) -> str:
    """A filter: ``Filter`` in backend/api/v2beta1/filter.proto.

    Quoted twice: the gateway unquotes it, and so does the server (``parseAPIFilter`` in
    apiserver/server/list_request_util.go).
    """
    predicate = {"operation": 1, "key": "display_name", "stringValue": name}  # 1: EQUALS
    return urllib.parse.quote(json.dumps({"predicates": [predicate]}))
