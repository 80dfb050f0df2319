"""What the garbage collector does during imports, and after them."""

import gc
import weakref

import pytest

from stagecraft.common import garbage_collection


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_no_collection_in_the_block_and_none_of_its_objects_after_it():
    before = gc.get_freeze_count()
    with garbage_collection.paused(freeze=True):
        assert not gc.isenabled()
        made = [Node() for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(made)


def test_later_garbage_is_collected():
    with garbage_collection.paused(freeze=True):
        pass
    node = Node()
    reference = weakref.ref(node)
    del node
    gc.collect()
    assert reference() is None


def test_an_error_ends_the_block_as_well():
    with pytest.raises(ImportError), garbage_collection.paused(freeze=True):
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off_and_blocks_nest():
    gc.disable()
    try:
        frozen = gc.get_freeze_count()
        with garbage_collection.paused(freeze=True), garbage_collection.paused(freeze=True):
            pass
        assert not gc.isenabled() and gc.get_freeze_count() == frozen
    finally:
        gc.enable()
    with garbage_collection.paused(freeze=True):
        with garbage_collection.paused(freeze=True):
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
