"""``stagecraft plan``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stagecraft.common import garbage_collection
from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import columns
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console
from stagecraft.trainer_module.planning.accelerators import NETWORK_GBIT, Cluster, parse_cluster
from stagecraft.trainer_module.planning.target import Target

if TYPE_CHECKING:
    import keras

    from stagecraft.contrib.goodput import Faults, Goodput
    from stagecraft.pipeline.settings import PipelineSettings
    from stagecraft.trainer_module.planning.plan import Plan


@click.command(cls=Command, short_help="Estimate the cost of a topology, without training.")
@options.settings_options
@click.option(
    "--devices",
    metavar="NxNAME",
    help="Plan with the published peak rates of these devices, such as 4xA100-40GB for each "
    "worker. This machine does not need to have these devices. With --search, also 8 (devices "
    "without a name) and 8x8xH100-80GB (hosts, devices of each).",
)
@click.option(
    "--search",
    is_flag=True,
    help="Find the fastest topologies of the devices for train.batch_size, and say why the others "
    "are slower. Settings below parallel that differ from their defaults stay as they are.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the time of each layer on the first device of this machine. Same as --set "
    "parallel.costs=measured.",
)
@click.option(
    "--network",
    type=click.FloatRange(min=0, min_open=True),
    default=NETWORK_GBIT,
    show_default=True,
    metavar="GBIT",
    help="Gbit/s between the hosts of workers, in one direction. The default is 10-Gbit Ethernet.",
)
@click.option(
    "--goodput",
    metavar="HOSTS",
    help="Simulate a month of training on these numbers of hosts, such as 1,64,1024: what "
    "failures, checkpoints and slow devices cost, and the best interval between checkpoints. "
    "Needs --devices or --measure.",
)
@click.option(
    "--faults",
    default="",
    metavar="NAME=NUMBER,…",
    help="For --goodput: mtbf=6334 (hours between failures of one host), restart=600 (seconds), "
    "checkpoint=60 (seconds that a checkpoint takes), jitter=0.02 (relative standard deviation of "
    "the time of a pass).",
)
@options.json_option
def plan(
    config: str,
    overrides: tuple[str, ...],
    devices: str | None,
    search: bool,
    measure: bool,
    network: float,
    goodput: str | None,
    faults: str,
    as_json: bool,
) -> None:
    """Estimate the cost of a topology, without training.

    The command shows the cuts of the model, the content of each stage and its share of the time,
    and the schedule of the microbatches. It also shows how long devices wait, and the speed-up over
    one device and over stages without microbatches. It says what limits the speed-up, and which
    topology would be faster.

    \b
    stagecraft plan --set parallel.strategy=grid --set parallel.stages=2 \\
        --set parallel.microbatches=4 --set parallel.virtual_devices=2
    stagecraft plan --config my.yaml --devices 4xA100-40GB
    stagecraft plan --config my.yaml --devices 8x8xH100-80GB --search
    stagecraft plan --config my.yaml --devices 4xA100-40GB --goodput 1,64,1024,4096

    --search compares replicas, stages, virtual stages, shards, microbatches, schedules,
    accumulation, recomputation and ZeRO, and shows the ten best divisions of the devices. It builds
    the model without weights, so that a model may be larger than the memory of this machine. To
    keep a degree, set it: --set parallel.stages=2.

    Without --measure and --devices, the command counts floating-point operations instead of time.
    These counts compare stages, but ignore copies between devices and hosts. Each worker counts as
    a host. Exit code: 0; 1 if the topology cannot be planned.
    """
    if not math.isfinite(network):
        raise SettingError("--network", network, "is not a finite number", "--network 25 (Gbit/s)")
    if devices and measure:
        raise UserError(
            "--measure measures this machine, but --devices plans for other machines; use one",
            setting="--measure",
        )
    if search and (goodput or faults):
        raise SettingError(
            "--goodput" if goodput else "--faults",
            goodput or faults,
            "simulates one topology, but --search compares many",
            "--goodput without --search, with the settings that --search shows",
        )
    months = _Months.parse(goodput, faults, seconds=bool(devices or measure))
    more = options.override("--measure", "parallel.costs", "measured" if measure else None)
    settings = options.load_settings(config, (*overrides, *more))
    if search:
        _search(settings, devices, network, as_json=as_json)
        return
    result, notes = _plan(settings, devices, network)
    console.say(str(result), stderr=as_json)
    of_hosts = months.simulate(result) if months else []
    if months:
        console.say(f"\n{_goodput_text(of_hosts, months.faults)}", stderr=as_json)
    for note in notes:
        console.say(f"note: {note}", stderr=as_json)
    if as_json:
        more_json = {"goodput": list(map(dataclasses.asdict, of_hosts))} if of_hosts else {}
        console.say_json(dataclasses.asdict(result) | more_json)


class _Months(NamedTuple):
    """The months to simulate, one for each number of hosts."""

    hosts: list[int]
    faults: Faults

    @classmethod
    def parse(cls, hosts: str | None, faults: str, *, seconds: bool) -> _Months | None:
        """Checks the options before anything is computed."""
        if hosts is None:
            if faults:
                raise SettingError("--faults", faults, "has no effect", "--goodput 1,64,1024")
            return None
        if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", hosts):
            problem = "is not a list of numbers of hosts below a million"
            raise SettingError("--goodput", hosts, problem, "--goodput 1,64,1024,4096")
        if not seconds:
            problem = "needs times in seconds, but the plan counts operations"
            use = "--devices 8xH100-80GB, or --measure, besides"
            raise SettingError("--goodput", hosts, problem, use)
        from stagecraft.contrib import goodput

        return cls([int(each) for each in hosts.split(",")], goodput.parse_faults(faults))

    def simulate(self, result: Plan) -> list[Goodput]:
        """The months, in the order of the option."""
        from stagecraft.contrib import goodput

        return [goodput.goodput(result, count, self.faults) for count in self.hosts]


def _plan(
    settings: PipelineSettings, named_devices: str | None, network_gbit: float
) -> tuple[Plan, list[str]]:
    """The plan, and notes about the model."""
    from stagecraft.pipeline.checks import early_checks

    early_checks.check_model(settings)
    target = Target(named_devices, "--devices ")
    target.check(settings.parallel)

    # TensorFlow takes seconds to import: after all checks that do not need it.
    with garbage_collection.paused(freeze=True):
        from stagecraft.pipeline.checks import preflight
        from stagecraft.pipeline.cli.terminal.run_view import progress_bar

    notes: list[str] = []

    def build() -> keras.Model:
        # Weights without values take no memory, but initial weights are checked.
        checks = settings.train.from_files.initial_weights is not None
        model, of_model = (preflight.build if checks else _without_values)(settings)
        notes.extend(of_model)
        return model

    with progress_bar("timing the model's layers", stderr=True) as on_progress:
        result = target.plan(build, settings, network_gbit=network_gbit, on_progress=on_progress)
    return result, notes


def _search(
    settings: PipelineSettings, named_devices: str | None, network_gbit: float, *, as_json: bool
) -> None:
    """Shows the fastest topologies.

    Args:
        named_devices: hosts, devices and accelerator; None: the devices of this machine.

    Raises:
        UserError: no topology is possible.
    """
    from stagecraft.pipeline.checks import early_checks

    early_checks.check_model(settings)
    cluster = parse_cluster(named_devices) if named_devices else None

    # TensorFlow takes seconds to import: after all checks that do not need it.
    from stagecraft.pipeline.cli.terminal.run_view import progress_bar
    from stagecraft.trainer_module.parallel.topology import available_devices, configure_devices
    from stagecraft.trainer_module.planning.search import automatic
    from stagecraft.trainer_module.planning.search.result import result_text

    parallel = settings.parallel
    configure_devices(parallel)
    own = list(parallel.device_names) or available_devices(parallel)
    if cluster is None:
        cluster = Cluster(1, len(own), None)
    model, notes = _without_values(settings)
    with progress_bar("searching", stderr=True) as on_progress:
        found = automatic.search(
            model,
            settings,
            hosts=cluster.hosts,
            devices=cluster.devices,
            device=own[0],
            accelerator=cluster.accelerator,
            network_gbit=network_gbit,
            on_progress=on_progress,
        ).found
    given = parallel.model_dump()
    console.say(result_text(found, settings.train.model, given), stderr=as_json)
    for note in notes:
        console.say(f"note: {note}", stderr=as_json)
    if as_json:
        console.say_json(dataclasses.asdict(found))


def _without_values(settings: PipelineSettings) -> tuple[Any, list[str]]:
    """The model, without values unless layers are measured; and notes about it."""
    from stagecraft.pipeline.checks import preflight

    if settings.parallel.costs == "flops":
        # Code of a user's model may read values; what it raises, is whatever it calls.
        with contextlib.suppress(Exception):
            return preflight.build_blank(settings)
    return preflight.build(settings)


def _goodput_text(months: Sequence[Goodput], faults: Faults) -> str:
    """Simulated months of a training, as a table."""
    names = ["hosts", "failures", "useful", "stragglers", "checkpoints", "lost work", "restarts"]
    lines = [[*names, "a checkpoint every"]]
    for month in months:
        shares = (month.stragglers, month.checkpoints, month.lost, month.restarts)
        lines.append(
            [
                f"{month.hosts:,}",
                f"{month.failures:,.1f}",
                f"{month.useful:.1%}",
                *(f"{share:.1%}" for share in shares),
                f"{_duration(month.checkpoint_seconds)} ({month.checkpoint_every:,} steps)",
            ]
        )
    return (
        "A month of training, simulated; each host as planned above:\n"
        f"{columns(lines)}\n"
        f"A host fails every {faults.mtbf:,.0f} h; a restart takes {faults.restart:g} s, a "
        f"checkpoint {faults.checkpoint:g} s; the time of a pass varies by {faults.jitter:.0%}."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
