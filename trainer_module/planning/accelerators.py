"""Published figures of accelerators, to plan for devices that this machine lacks.

From the vendors' data sheets: peak rates of dense matrix operations, memory, memory bandwidth, and
the bandwidth of the link between devices in one direction (NVLink of the SXM boards, else PCIe).
float32 is TF32 on devices that have it, TensorFlow's default for convolutions and matrix products.
A training is slower, by a factor that hardly depends on the cuts of the model.
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

from stagecraft.schemas.errors import SettingError


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """Peak figures of one device."""

    name: str
    memory_gb: float
    """GB, of 1e9 bytes."""
    memory_gb_per_second: float
    link_gb_per_second: float
    """To another device of the host."""
    float32_tflops: float
    float64_tflops: float
    float16_tflops: float
    bfloat16_tflops: float

    def flops_per_second(self, precision: str) -> float:
        """Peak rate for a value of ``parallel.precision``."""
        column = precision.removeprefix("mixed_")
        teraflops: float = getattr(self, f"{column}_tflops")
        return teraflops * 1e12


# fmt: off
ACCELERATORS = {
    each.name: each
    for each in (
        #           name        memory  bandwidth link float32 float64 float16 bfloat16
        Accelerator("V100-16GB",  16,     900,   150,   15.7,    7.8,   125,    15.7),
        Accelerator("V100-32GB",  32,     900,   150,   15.7,    7.8,   125,    15.7),
        Accelerator("T4-16GB",    16,     320,    16,    8.1,    0.25,   65,     8.1),
        Accelerator("A10-24GB",   24,     600,    32,   62.5,    0.49,  125,   125),
        Accelerator("L4-24GB",    24,     300,    32,   60,      0.47,  121,   121),
        Accelerator("A100-40GB",  40,   1_555,   300,  156,      9.7,   312,   312),
        Accelerator("A100-80GB",  80,   2_039,   300,  156,      9.7,   312,   312),
        Accelerator("H100-80GB",  80,   3_350,   450,  495,     34,     989,   989),
    )
}
# fmt: on

NETWORK_GBIT = 10.0
"""Default for the network of a host, in Gbit/s: 10-Gbit Ethernet (IEEE 802.3ae), as in an AWS
p3.8xlarge with four V100 (aws.amazon.com/ec2/instance-types/p3)."""

_DEVICES = re.compile(r"(?:(\d+)\s*[x×*]\s*)?([\w-]+)", re.IGNORECASE)


_CLUSTER = re.compile(r"(?:(\d+)\s*[x×*]\s*)??(\d+)(?:\s*[x×*]\s*([a-z][\w-]*))?", re.IGNORECASE)


class Cluster(NamedTuple):
    """Hosts of equal devices."""

    hosts: int
    devices: int
    """Of each host."""
    accelerator: Accelerator | None
    """None: a number of devices as this machine has them."""


def parse_cluster(text: str, setting: str = "--devices") -> Cluster:
    """Parses ``"8"``, ``"4xV100-32GB"`` or ``"8x8xH100-80GB"``: hosts, devices of each, and name.

    Raises:
        SettingError: the text is none; ``setting`` names it.
    """
    match = _CLUSTER.fullmatch(text.strip())
    by_name = {name.lower(): each for name, each in ACCELERATORS.items()}
    name = (match[3] or "").lower() if match else ""
    single = by_name.get(text.strip().lower())
    if single is not None:
        return Cluster(1, 1, single)
    if not match or not int(match[1] or 1) or not int(match[2]) or (name and name not in by_name):
        raise SettingError(
            setting,
            repr(text),
            "is not valid",
            "NUMBER, NUMBERxDEVICE or HOSTSxNUMBERxDEVICE, such as 8x8xH100-80GB; the devices are "
            f"{', '.join(ACCELERATORS)}",
        )
    return Cluster(int(match[1] or 1), int(match[2]), by_name.get(name))


def parse(text: str, setting: str = "--devices") -> tuple[int, Accelerator]:
    """Parses a number of devices, such as ``"4xA100-40GB"``.

    Raises:
        SettingError: the text is none; ``setting`` names it.
    """
    match = _DEVICES.fullmatch(text.strip())
    count = int(match[1] or 1) if match else 0
    by_name = {name.lower(): each for name, each in ACCELERATORS.items()}
    if not match or not count or match[2].lower() not in by_name:
        raise SettingError(
            setting,
            repr(text),
            "is not valid",
            f"NUMBERxDEVICE, such as 4xA100-40GB; the devices are {', '.join(ACCELERATORS)}",
        )
    return count, by_name[match[2].lower()]
