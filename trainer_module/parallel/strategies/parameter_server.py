"""Workers that train by themselves on variables that parameter servers hold."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy, Traffic
from stagecraft.trainer_module.parallel.topology import Topology


class ParameterServer(Strategy):
    """``tf.distribute.ParameterServerStrategy``: each worker updates the variables by itself."""

    name = "parameter_server"
    description = "asynchronous workers, with variables on parameter servers"
    several_processes = True
    takes_all_gpus = True
    in_step = False
    divides_calls = True
    serves = frozenset({"worker", "ps"})
    restarts_alone = frozenset({"worker"})
    parity_cases = {
        "parameter_server-1": ParityCase(
            "a chief, a worker and a parameter server, each a process", {"workers": 1}
        )
    }
    engine = "stagecraft.trainer_module.engines.parameter_server:ParameterServerEngine"
    traffic_name = "fetching"
    traffic_description = "what workers fetch from the parameter servers and send to them"
    fidelity = "Workers update the weights asynchronously."

    def refuse(self, parallel: ParallelSettings) -> None:
        """Raises a SettingError for synchronous replicas, and for a loss scale."""
        if parallel.replicas > 1:
            raise SettingError(
                "parallel.replicas",
                parallel.replicas,
                "needs synchronous replicas, but each worker of parameter_server trains "
                "asynchronously with one replica",
                "parallel.replicas: 1 with parallel.workers: "
                f"{parallel.workers * parallel.replicas}",
            )
        if parallel.precision == "mixed_float16":
            raise SettingError(
                "parallel.precision",
                parallel.precision,
                "needs one loss scale for all workers, but workers of parameter_server are "
                "asynchronous",
                "parallel.precision: mixed_bfloat16",
            )

    def homes(self, parallel: ParallelSettings) -> Sequence[str]:
        """The servers."""
        return [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(parallel.ps)]

    def processes(self, parallel: ParallelSettings) -> dict[str, int]:
        """A chief, workers and parameter servers."""
        return {"chief": 1, "worker": parallel.workers, "ps": parallel.ps}

    def cluster(self, parallel: ParallelSettings) -> Cluster | None:
        """A chief, workers and parameter servers, as many as the settings say."""
        example = '{"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]}'
        needs = (
            "but parallel.strategy: parameter_server needs a chief, workers and parameter servers"
        )
        members = cluster.read()
        if members is None:
            raise cluster.TFConfigError(
                f"unset, {needs}", f'"cluster": {example} and a "task" for each process'
            )
        jobs = {"chief": members.has_chief, "worker": members.remote_workers, "ps": members.ps}
        for job, own in jobs.items():
            if not own:
                raise cluster.TFConfigError(
                    f'cluster has no "{job}", {needs}', f'"cluster": {example}'
                )
        cluster.check_count("workers", len(members.remote_workers), parallel.workers)
        cluster.check_count("ps", len(members.ps), parallel.ps)
        return members

    def serve(self) -> None:
        """Does the chief's work; never returns."""
        pkgutil.resolve_name("stagecraft.trainer_module.engines.parameter_server:serve")()

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The strategy over the workers and servers."""
        import tensorflow as tf

        return tf.distribute.ParameterServerStrategy(cluster.resolver())

    def traffic(
        self, parallel: ParallelSettings, gradients: Sequence[float], weights: float
    ) -> Traffic:
        """Each worker fetches all variables and sends all gradients; the servers share that."""
        busiest = max(1.0, parallel.workers / parallel.ps)
        return Traffic(0.0, (weights + sum(gradients)) * busiest)

    def crosses_hosts(self, parallel: ParallelSettings) -> bool:
        """Always: the variables lie on servers."""
        return True


PARAMETER_SERVER = ParameterServer()
