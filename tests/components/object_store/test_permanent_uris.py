from stagecraft.components.object_store import permanent_uris


def test_a_copy_is_known_in_the_block():
    with permanent_uris.copied({"/minio/a": "minio://a"}):
        assert permanent_uris.permanent_uri("/minio/a") == "minio://a"
        assert permanent_uris.permanent_uri("/here") == "/here"
    assert permanent_uris.permanent_uri("/minio/a") == "/minio/a"
