"""Published figures of accelerators, to plan for devices that this machine lacks.

From the vendors' data sheets: peak rates of dense matrix operations, memory, memory bandwidth, and
the bandwidth of the link between devices in one direction (NVLink of the SXM boards, else PCIe).
float32 is TF32 on devices that have it, TensorFlow's default for convolutions and matrix products.

No training reaches the peak rates. The share of the peak rate of operations is calibrated once for
each kind of accelerator, so that the prediction of one published training is exact
(``benchmarks/planning/planner_papers.py --efficiency``):

* P40: torchgpipe's ResNet-101 on one device, 95.862 examples/s;
* V100: NVIDIA's ResNet-50 in float32 on one device, 412 examples/s. XLA fused its operations, so
  that it moved less memory than the model counts; the share therefore is above that of others;
* A100: Megatron-LM's model of 1.7 billion parameters, 137 teraFLOP/s.

The P100 has the share of the P40, and the T4, A10, L4 and H100 that of the A100: not calibrated.
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

from stagecraft.common.errors import SettingError

MEMORY_EFFICIENCY = 0.8
"""Share of the peak memory bandwidth that operations reach; assumed, the same for all kinds."""

OPERATION_SECONDS = 5e-6
"""Fixed time of an operation, to start a kernel; assumed, the same for all kinds."""


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """Peak figures of one device, and the shares of them that a training reaches."""

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
    tf32: bool = False
    """Whether float32 uses matrix units."""
    efficiency: float = 1.0
    """Largest share of the peak rate of operations."""
    memory_efficiency: float = MEMORY_EFFICIENCY
    """Share of the peak memory bandwidth."""
    operation_seconds: float = OPERATION_SECONDS
    """Fixed time of an operation."""

    def flops_per_second(self, precision: str) -> float:
        """Peak rate for a value of ``parallel.precision``."""
        column = precision.removeprefix("mixed_")
        teraflops: float = getattr(self, f"{column}_tflops")
        return teraflops * 1e12

    def uses_winograd(self, precision: str) -> bool:
        """Whether 3 x 3 convolutions use Winograd's algorithm: in float32 without TF32."""
        return precision == "float32" and not self.tf32


# fmt: off
ACCELERATORS = {
    each.name: each
    for each in (
        #           name        memory  bandwidth link float32 float64 float16 bfloat16 tf32 share
        Accelerator("P40-24GB",   24,     346,    16,   11.8,    0.37,    0.18,  11.8, False, 0.52),
        Accelerator("P100-16GB",  16,     732,    16,    9.3,    4.7,    18.7,    9.3, False, 0.52),
        Accelerator("V100-16GB",  16,     900,   150,   15.7,    7.8,   125,    15.7,  False, 1.0),
        Accelerator("V100-32GB",  32,     900,   150,   15.7,    7.8,   125,    15.7,  False, 1.0),
        Accelerator("T4-16GB",    16,     320,    16,    8.1,    0.25,   65,     8.1,  False, 0.64),
        Accelerator("A10-24GB",   24,     600,    32,   62.5,    0.49,  125,   125,    True,  0.64),
        Accelerator("L4-24GB",    24,     300,    32,   60,      0.47,  121,   121,    True,  0.64),
        Accelerator("A100-40GB",  40,   1_555,   300,  156,      9.7,   312,   312,    True,  0.64),
        Accelerator("A100-80GB",  80,   2_039,   300,  156,      9.7,   312,   312,    True,  0.64),
        Accelerator("H100-80GB",  80,   3_350,   450,  495,     34,     989,   989,    True,  0.64),
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
    """The accelerator; None: a number of devices as this machine has them."""


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
