"""Components with ``@component``, as users of TFX write them."""

import json

import tables
from tfx.dsl.component.experimental.annotations import OutputDict, Parameter
from tfx.dsl.component.experimental.decorators import component


@component
def make_numbers(
    start: Parameter[int] = 2,
) -> OutputDict(number=int, rate=float, name=str, good=bool):  # type: ignore[valid-type]
    """Returns a value of each kind."""
    return {"number": start + 40, "rate": 1e-7, "name": "a <text>", "good": True}


@component
def show_numbers(
    number: int,
    rate: float,
    name: str,
    good: bool,
    flag: Parameter[bool],
    words: Parameter[list[str]],
    sizes: Parameter[dict[str, int]],
) -> OutputDict(shown=str, flag_again=bool):  # type: ignore[valid-type]
    """Returns what it received."""
    received = [number, rate, name, good, flag, words, sizes]
    types = [type(value).__name__ for value in received]
    return {"shown": json.dumps([received, types]), "flag_again": flag}


@component
def check(shown: str, flag_again: bool) -> OutputDict(equal=bool):  # type: ignore[valid-type]
    """Fails if the values are not those that the local operator passes."""
    expected = [42, 1e-7, "a <text>", True, True, ["a", "b"], {"x": 3}]
    names = ["int", "float", "str", "bool", "bool", "list", "dict"]
    if json.loads(shown) != [expected, names] or flag_again is not True:
        raise ValueError(f"{shown} {flag_again!r}")
    return {"equal": True}


@component
def say(text: Parameter[str]) -> OutputDict(said=str):  # type: ignore[valid-type]
    """Returns what it received."""
    return {"said": text}


def create_pipeline(name: str, root: str) -> object:
    """Components with underscores in their names."""
    from tfx.orchestration.pipeline import Pipeline

    numbers = make_numbers()
    shown = show_numbers(
        **{key: numbers.outputs[key] for key in ("number", "rate", "name", "good")},
        flag=True,
        words=["a", "b"],
        sizes={"x": 3},
    )
    last = check(**{key: shown.outputs[key] for key in ("shown", "flag_again")})
    made = tables.make_table()
    read = tables.read_table(table=made.outputs["table"])
    components = [numbers, shown, last, made, read]
    return Pipeline(name, root, components=components, enable_cache=False)
