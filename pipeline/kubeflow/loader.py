"""The parser of compiled pipelines, which are long: libyaml's takes a tenth of Python's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    FASTEST = yaml.SafeLoader
else:
    FASTEST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of a PyYAML without libyaml
