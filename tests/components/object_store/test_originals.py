from __future__ import annotations

from stagecraft.components.object_store import originals


def test_a_copy_is_known_in_the_block() -> None:
    with originals.known({"/minio/a": "minio://a"}):
        assert originals.original("/minio/a") == "minio://a"
        assert originals.original("/here") == "/here"
    assert originals.original("/minio/a") == "/minio/a"
