"""Failures of hosts, and what they cost a training."""

from __future__ import annotations

import dataclasses
import math

from stagecraft.common.errors import SettingError, nearest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """Faults and their costs."""

    mtbf: float = 6_334.0
    """Mean hours between two failures of one host. The default is that of Llama 3: 419 unexpected
    interruptions in 54 days on 2,048 hosts of 8 GPUs (arXiv 2407.21783, section 3.3.4)."""
    restart: float = 600.0
    """Seconds from a failure to the next step: notice it, replace the host, load the checkpoint."""
    checkpoint: float = 60.0
    """Seconds in which a checkpoint stops the training."""
    jitter: float = 0.02
    """Relative standard deviation of the time of a pass through a stage, on each device."""


def parse(text: str) -> Faults:
    """Faults as a person writes them: ``mtbf=5000,restart=300``.

    Raises:
        SettingError: a name is unknown, or a value is no number above 0 (``jitter``: from 0).
    """
    known = {field.name: field.default for field in dataclasses.fields(Faults)}
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        example = ",".join(f"{each}={default:g}" for each, default in known.items())
        if name not in known:
            use = nearest(name, known, f"NAME=NUMBER, such as {example}")
            raise SettingError("--faults", name, "is unknown", use)
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        least = 0.0 if name == "jitter" else math.ulp(0.0)
        if not least <= found[name] < math.inf:
            problem = "is not a number" if name == "jitter" else "is not a number above 0"
            raise SettingError("--faults", part, problem, f"{name}={known[name]:g}")
    return Faults(**found)
