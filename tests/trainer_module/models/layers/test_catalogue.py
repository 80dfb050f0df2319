import inspect

import keras
import pytest
from catalogue import page, run

SELECTED = ("BatchNormalization", "activity_regularizer, called twice")
"""Rows that train on all topologies; the rest of the table takes a quarter of an hour."""


@pytest.mark.parametrize("module", ["layers", "regularizers", "constraints"])
def test_each_public_class_has_a_row(module):
    public = {
        kind
        for kind in vars(getattr(keras, module)).values()
        if inspect.isclass(kind) and kind is not keras.layers.InputSpec
    }
    covered = {kind for row in run.all_rows() for kind in row.covers}
    assert {kind.__name__ for kind in public - covered} == set()


def test_each_row_is_on_the_page_once():
    names = [row.name for row in run.all_rows()]
    assert len(set(names)) == len(names)
    assert set(names) - set(page.read()[0]) == set()


@pytest.mark.full
@pytest.mark.slow
def test_the_page_says_what_some_rows_give():
    _holds(page.measure(list(page.COLUMNS), SELECTED))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_page_says_what_all_give():
    """Keras's own ``train_step`` is the oracle of one device; the other topologies follow it."""
    _holds(page.measure(list(page.COLUMNS)))


def _holds(found: page.Verdicts) -> None:
    cells, sentences = page.read()
    differ = {}
    for name, of in found.items():
        for topology, (verdict, why) in of.items():
            said = cells[name][topology]
            number = said.partition("(")[2].rstrip(")")
            if said != verdict and not (verdict == "refused" and number):
                differ[name, topology] = f"{verdict} ({why}), but the page says {said}"
            elif number and sentences[int(number) - 1] != page.general(why):
                differ[name, topology] = f"{why}, but the page has {sentences[int(number) - 1]}"
    assert differ == {}
