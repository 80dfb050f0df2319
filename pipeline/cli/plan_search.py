"""``stagecraft plan --search``."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from stagecraft.pipeline.cli.terminal import console
from stagecraft.trainer_module.planning.accelerators import Cluster, parse_cluster

if TYPE_CHECKING:
    from stagecraft.pipeline.settings import PipelineSettings


def run(
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
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.planning.search import automatic
    from stagecraft.trainer_module.planning.search.result import result_text

    parallel = settings.parallel
    topology.configure_devices(parallel)
    own = list(parallel.device_names) or topology.available(parallel)
    if cluster is None:
        cluster = Cluster(1, len(own), None)
    model, notes = _model(settings)
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


def _model(settings: PipelineSettings) -> tuple[Any, list[str]]:
    """The model, without values unless layers are measured; and notes about it."""
    from stagecraft.pipeline.checks import preflight

    if settings.parallel.costs == "flops":
        # Code of a user's model may read values; what it raises, is whatever it calls.
        with contextlib.suppress(Exception):
            return preflight.build_blank(settings)
    return preflight.build(settings)
