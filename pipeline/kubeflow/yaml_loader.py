"""Parses compiled pipelines with libyaml, which takes a tenth of the time of PyYAML's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    FASTEST = yaml.SafeLoader
else:
    FASTEST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # where PyYAML has no libyaml

DEEPEST = 200
"""Levels of nesting; a compiled pipeline has about 15. libyaml's parser crashes at thousands."""


def load_all(text: str, loader: type[yaml.SafeLoader] = FASTEST) -> list[Any]:
    """The documents of a text.

    Raises:
        yaml.YAMLError: also for deep nesting, and for numbers of thousands of digits.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested in more than {DEEPEST} levels")
    try:
        return list(yaml.load_all(text, Loader=loader))
    except (AttributeError, LookupError, ValueError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
