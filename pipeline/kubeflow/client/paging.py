"""Lists of the server's: page by page, and by name."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.client.api import Api

_PAGE = 100


def pages(api: Api, method: str, field: str, **arguments: Any) -> Iterator[Any]:
    """All entries of a list that comes in pages."""
    token = ""
    while True:
        answer = api.call(method, page_token=token, page_size=_PAGE, **arguments)
        yield from getattr(answer, field) or ()
        token = answer.next_page_token or ""
        if not token:
            return


def named(name: str) -> str:
    """A filter: ``Filter`` in backend/api/v2beta1/filter.proto.

    Quoted, because the server takes quotes away once more than the gateway before it does
    (``parseAPIFilter`` in apiserver/server/list_request_util.go).
    """
    predicate = {"operation": 1, "key": "display_name", "stringValue": name}  # 1: EQUALS
    return urllib.parse.quote(json.dumps({"predicates": [predicate]}))
