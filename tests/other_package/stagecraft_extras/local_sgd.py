"""Replicas that train by themselves and average their weights every k steps.

Stich 2019, "Local SGD converges fast and communicates little". The environment variable
``LOCAL_SGD_STEPS`` is k. With 1 and plain SGD it computes what ``mirrored`` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from stagecraft.extend import Mirrored, ParallelSettings, ParityCase, SettingError, Traffic


class LocalSgd(Mirrored):
    """``mirrored`` with averages of weights in place of sums of gradients."""

    name = "local_sgd"
    description = "replicas that average their weights every few steps"
    parity_cases = {
        "local_sgd-2": ParityCase(
            "two replicas that average their weights in each step",
            {"replicas": 2},
            {"optimizer": "sgd", "momentum": 0.0},
        )
    }
    traffic_name = "averaging"
    traffic_description = "the averaging of weights"

    @property
    def steps(self) -> int:
        """Steps from one average to the next."""
        return int(os.environ.get("LOCAL_SGD_STEPS", "1"))

    @property
    def fidelity(self) -> str:  # type: ignore[override]
        """Of a report."""
        return f"Replicas average their weights every {self.steps} steps."

    def refuse(self, parallel: ParallelSettings) -> None:
        """Refuses a loss scale: each replica's gradients are its own."""
        if parallel.precision == "mixed_float16":
            raise SettingError(
                "parallel.precision",
                parallel.precision,
                "scales the loss, but replicas of local_sgd do not agree on one scale",
                "parallel.precision: mixed_bfloat16",
            )

    def traffic(
        self, parallel: ParallelSettings, gradients: Sequence[float], weights: float
    ) -> Traffic:
        """That of mirrored, every few steps."""
        each = super().traffic(parallel, gradients, weights)
        return Traffic(each.devices / self.steps, each.hosts / self.steps)

    def alternative(self, replicas: int, stages: int) -> str | None:
        """None: others compute other numbers."""
        return None

    def make_engine(
        self,
        connected: Any,
        topology: Any,
        settings: Any,
        total_steps: int,
        build_model: Callable[..., Any],
    ) -> Any:
        """An engine of replicas whose weights differ between averages."""
        import tensorflow as tf

        from stagecraft.extend import StrategyEngine

        steps = self.steps

        class LocalSgdEngine(StrategyEngine):
            _local = False
            """Whether the graph of a step is being made, and not one of gradients alone."""

            def _global_step(self, batch: Any) -> Any:
                self._local = True
                try:
                    return super()._global_step(batch)
                finally:
                    self._local = False

            def _reduce(self, context: Any, gradients: Any, rest: Any) -> Any:
                if not self._local:
                    return super()._reduce(context, gradients, rest)
                _, rest = super()._reduce(context, [], rest)
                # Of the mean over this replica's part of the batch.
                return [context.num_replicas_in_sync * each for each in gradients], rest

            def _finish_step(self) -> None:
                due = tf.equal((self._step + 1) % steps, 0)

                def average() -> list[tf.Tensor]:
                    context = tf.distribute.get_replica_context()
                    own = [tf.convert_to_tensor(weight) for weight in self._stage.trainable]
                    means = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
                    return [tf.where(due, *pair) for pair in zip(means, own, strict=True)]

                strategy = self._strategy
                values = strategy.run(average)
                for weight, value in zip(self._stage.trainable, values, strict=True):
                    strategy.extended.update(
                        weight.value, lambda copy, new: copy.assign(new), args=(value,)
                    )
                super()._finish_step()

        return LocalSgdEngine(connected, topology, settings, total_steps, build_model)


LOCAL_SGD = LocalSgd()
