"""A replica: stages in a row, through which microbatches go forward and back.

In the order of :mod:`stagecraft.trainer_module.planning.schedule`, which draws it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.data.tasks import softmax
from stagecraft.trainer_module.engines import step_metrics
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.engines.stage_replica import StageReplica
from stagecraft.trainer_module.models.stages import functional, shared_function
from stagecraft.trainer_module.models.stages.shards import group as groups
from stagecraft.trainer_module.models.stages.shards import vocabulary
from stagecraft.trainer_module.models.stages.shards.group import ShardGroup
from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

Values = tuple[list[tf.Tensor], list[tf.Tensor]]
"""Weights and state of a stage."""

Traces = dict[int, Callable[..., tuple[Any, ...]]]
"""Number of a stage -> its forward pass, as one function."""


class PartialSums(NamedTuple):
    """What one stage adds up over the parts of the global batch."""

    gradients: list[tf.Tensor]
    changed: dict[int, tf.Tensor]
    metrics: list[tf.Tensor]
    """``[penalty]``; in the last stage ``[loss, Objective.sums]``. The sum of all stages' first
    values is the loss. Only the first shard of a stage has them."""


class ReplicaPipeline:
    """The stages of a replica, and their passes over its part of a batch."""

    def __init__(
        self,
        stages: Sequence[StageReplica],
        settings: TrainingSettings,
        parts: int,
        objective: Objective,
        traces: Traces,
    ):
        """Takes the stages in order, each with its shards.

        Args:
            parts: into how many the global batch is divided, over all replicas.
            traces: those of another replica, which has the same stages, or a new dictionary.
        """
        parallel, count = settings.parallel, settings.parallel.shards
        self._shards = [stages[k : k + count] for k in range(0, len(stages), count)]
        """Per stage: its shards."""
        self.stages = [shards[0] for shards in self._shards]
        """Per stage: its first shard, which computes everything that is not divided."""
        self._objective = objective
        self._train = settings.train
        self._dtype = step_metrics.metrics_dtype(settings)
        self._passes = schedule.in_order(
            parallel.schedule, parallel.microbatches, parallel.stages, parallel.virtual_stages
        )
        self._devices = parallel.stages
        self._parts = parts
        self._traces = traces if _shares_traces(parallel) else None
        """None: each pass has its own ops."""
        self._inlined: set[int] = set()
        """Numbers of the stages that use no trace all the same."""
        self._add = step_metrics.plus
        if self._traces is not None:
            self._add = shared_function.shared(self._add)
        self.passes_back: list[list[bool]] = []
        """Per stage: whether the stage before it needs the gradient of each of its inputs."""
        self.freeze(())

    def freeze(self, frozen: Collection[str]) -> None:
        """Leaves the weights with these paths out of the steps that are traced next."""
        self.passes_back = [[]]
        for stage in self.stages[:-1]:
            model = stage.stage.model
            of_inputs = self.passes_back[-1] or [False] * len(model.inputs)
            self.passes_back.append(functional.have_gradients(model, of_inputs, frozen))
        self._has_gradient = [list(each) for each in self.passes_back[1:]]
        for shards, of_inputs in zip(self._shards, self.passes_back, strict=True):
            shards[0].stage.freeze(frozen, any(of_inputs))
            for shard in shards:
                shard.freeze(frozen)
        if self._traces is not None:
            self._traces.clear()

    def forward_and_back(
        self,
        values: Sequence[Values],
        batch: Batch,
        rows: tf.Tensor,
        step: tf.Tensor,
        scale: tf.Tensor | None,
    ) -> list[PartialSums]:
        """All microbatches forward and backward; the sums of each shard of each stage.

        Data dependencies order the passes across devices. On a device, each pass waits for the one
        before it: otherwise the executor would alternate between all microbatches.

        Args:
            batch: each tensor ``[microbatches, examples, ...]``.
            rows: int64 ``[microbatches, examples]``, the examples' rows in the global batch.
            scale: of the loss, for gradients that fit into float16; None: 1.
        """
        passed: dict[tuple[int, int], _Forward] = {}
        incoming: dict[tuple[int, int], dict[int, tf.Tensor]] = {}
        sums: dict[int, list[PartialSums]] = {}
        seeds: list[_Seeds] = [_Seeds(stage, scale) for stage in self.stages]
        latest: list[list[tf.Tensor]] = [[] for _ in range(self._devices)]
        for direction, k, m in self._passes:
            device = k % self._devices
            with self.scope(k, f"{direction}{m}", latest[device]):
                if direction == schedule.FORWARD:
                    part = batches.take(batch, m)
                    source = passed[k - 1, m].outputs if k else part.inputs
                    # The copies on this device, which the tape watches.
                    inputs = tf.nest.map_structure(tf.identity, source)
                    with tf.control_dependencies(tf.nest.flatten(inputs)):
                        passed[k, m] = self._forward(k, values[k], inputs, part, rows[m], step)
                    latest[device] = passed[k, m].results
                    continue
                forward = passed.pop((k, m))
                arrived = {i: tf.identity(v) for i, v in incoming.pop((k, m), {}).items()}
                with tf.control_dependencies(list(arrived.values())):
                    if forward.traced and self._lacks_gradient(k, arrived):
                        self._inlined.add(k)
                        part = batches.take(batch, m)
                        forward = self._forward(k, values[k], forward.inputs, part, rows[m], step)
                    gradients, back = self._backward(k, values[k][0], forward, arrived, seeds[k])
                latest[device] = [*gradients, *back.values()]
                incoming[k - 1, m] = back
            new = self._of_shards(k, gradients, forward)
            sums[k] = [
                self._plus(shard, sums[k][place], each) if k in sums else each
                for place, (shard, each) in enumerate(zip(self._shards[k], new, strict=True))
            ]
        return [each for k in range(len(self.stages)) for each in sums[k]]

    def read(self, number: int, averaged: bool = False) -> Values:
        """Weights and state of a stage, each on its shard's device."""
        read = [shard.read(averaged) for shard in self._shards[number]]
        return [w for weights, _ in read for w in weights], [v for _, state in read for v in state]

    def infer(self, number: int, inputs: Nest) -> Nest:
        """The outputs of a stage in an evaluation."""
        weights, state = self.read(number, averaged=True)
        inputs = tf.nest.map_structure(tf.identity, inputs)
        return self.stages[number].stage.infer(weights, state, inputs)

    @contextlib.contextmanager
    def scope(self, number: int, part: str, after: Sequence[Any] = ()) -> Iterator[None]:
        """In the block, ops run on a stage's device, and on those of its other shards."""
        shards = self._shards[number]
        with self.stages[number].scope(part, after):
            if len(shards) == 1:
                yield
                return
            scopes = [functools.partial(shard.scope, part) for shard in shards]
            group = ShardGroup(scopes, self.stages[number].stage.jit)
            find = functools.partial(vocabulary.Logits.find, group)
            with groups.active(group), softmax.dividing(find):
                yield

    def _of_shards(
        self, number: int, gradients: Sequence[tf.Tensor], forward: _Forward
    ) -> list[PartialSums]:
        """Each shard's part of the results of a pass."""
        rest, owner = iter(gradients), self.stages[number].stage.owner
        here = tf.identity if len(self._shards[number]) > 1 else tf.convert_to_tensor
        parts = []
        for shard in self._shards[number]:
            with shard.scope("accumulate"):
                own = [here(next(rest)) for _ in shard.trained]
                changed = {
                    i: here(v) for i, v in forward.changed.items() if owner(i) == shard.shard
                }
                metrics = self._metrics(forward) if shard.shard == 0 else []
                parts.append(PartialSums(own, changed, metrics))
        return parts

    def _plus(self, shard: StageReplica, one: PartialSums, other: PartialSums) -> PartialSums:
        with shard.scope("accumulate"):
            return PartialSums(*self._add(one, other))

    def _forward(
        self,
        number: int,
        values: Values,
        inputs: Nest,
        batch: Batch,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> _Forward:
        """The forward pass of a microbatch through a stage, on its device."""
        compared = batch[1:] if number == len(self.stages) - 1 else None
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.stages[number].stage.trained(values[0]))
            tape.watch([each for each in tf.nest.flatten(inputs) if each.dtype.is_floating])
            computed = self._trace(number)(values, inputs, compared, rows, step)
        traced = self._traces is not None and number not in self._inlined
        return _Forward(traced, tape, inputs, *computed)

    def _trace(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """The way forward through a stage, as :meth:`_compute`."""
        compute = functools.partial(self._compute, number)
        if self._traces is None or number in self._inlined:
            return compute
        if number not in self._traces:
            self._traces[number] = shared_function.shared(compute)
        return self._traces[number]

    def _compute(
        self,
        number: int,
        values: Values,
        inputs: Nest,
        compared: tuple[Nest, tf.Tensor] | None,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[Any, ...]:
        """The fields of :class:`_Forward` from ``outputs`` on.

        Args:
            compared: targets and weights, for the last stage.
        """
        outputs, changed, penalty = self.stages[number].stage(*values, inputs, step, rows)
        # The gradient of a function takes one of each result.
        changed = {place: tf.stop_gradient(value) for place, value in changed.items()}
        if compared is None:
            return outputs, changed, penalty, None, None
        batch = Batch(inputs, *compared)
        losses = self._objective.loss(outputs, batch)
        sums = tf.stop_gradient(self._objective.sums(outputs, batch))
        return None, changed, penalty, losses, sums

    def _lacks_gradient(self, number: int, incoming: Mapping[int, tf.Tensor]) -> bool:
        """Whether no gradient arrives for a result of a stage that depends on weights.

        A function would take zeros for it. The weights behind it would then seem to have a
        gradient, and zero times infinity is NaN. From now on, the stage's passes have their own
        ops.
        """
        if number == len(self.stages) - 1:
            return False
        has_gradient = self._has_gradient[number]
        return any(has and place not in incoming for place, has in enumerate(has_gradient))

    def _backward(
        self,
        number: int,
        weights: Sequence[tf.Tensor],
        passed: _Forward,
        incoming: Mapping[int, tf.Tensor],
        seeds: _Seeds,
    ) -> tuple[list[tf.Tensor], dict[int, tf.Tensor]]:
        """The vector-Jacobian product of a stage.

        Args:
            incoming: gradients of the outputs by their index, from the stage after this one; of
                the last stage, none.

        Returns:
            The gradients of the trained weights; and, by their index, of the inputs whose gradients
            the stage before needs.
        """
        weights = self.stages[number].stage.trained(weights)
        wanted = [index for index, has in enumerate(self.passes_back[number]) if has]
        inputs = tf.nest.flatten(passed.inputs)
        sources = [*weights, *(inputs[index] for index in wanted)]
        if not sources:
            return [], {}
        outputs = [] if passed.outputs is None else tf.nest.flatten(passed.outputs)
        targets, arrived = [outputs[index] for index in incoming], [*incoming.values()]
        for value, divisor in self._parts_of_loss(passed):
            targets.append(value)
            arrived.append(seeds.of_loss(value, divisor))
        if passed.traced:
            known = set(map(id, targets))
            rest = tf.nest.flatten((outputs, passed.changed, passed.sums))
            rest = [each for each in rest if tf.is_tensor(each) and id(each) not in known]
            targets += (others := [each for each in rest if each.dtype.is_floating])
            arrived += [seeds.zeros(place, each) for place, each in enumerate(others)]
        raw = passed.tape.gradient(targets, sources, output_gradients=arrived)
        gradients, has_gradient = step_metrics.connected(raw[: len(weights)], weights)
        flags = iter(has_gradient)
        for shard in self._shards[number]:
            shard.connected = [next(flags) for _ in shard.trained]
        back = dict(zip(wanted, raw[len(weights) :], strict=True))
        # Nothing goes back through a gradient that a layer stops.
        for index, gradient in back.items():
            self.passes_back[number][index] = gradient is not None
        given = {i: tf.convert_to_tensor(v) for i, v in back.items() if v is not None}
        return gradients, given

    def _metrics(self, passed: _Forward) -> list[tf.Tensor]:
        values = [value / divisor for value, divisor in self._parts_of_loss(passed)]
        loss = tf.add_n([tf.cast(value, self._dtype) for value in values])
        return [loss] if passed.sums is None else [loss, passed.sums]

    def _parts_of_loss(self, passed: _Forward) -> list[tuple[tf.Tensor, int]]:
        """Sums and their divisors; the quotients are parts of the global batch's loss."""
        parts = [(passed.penalty, self._parts)]
        if passed.losses is not None:
            parts.append((passed.losses, self._train.batch_size))
        return parts


def _shares_traces(parallel: ParallelSettings) -> bool:
    """Whether all passes through a stage share a function.

    A timeline finds passes by the names of their ops, which would be alike. Shards that recompute
    record gradients which a function does not see. TensorFlow folds other constants in a function
    than in the graph of one device; 16 bits would make more of this than of the order of sums.
    Recomputed activations have functions anyway.
    """
    several = parallel.microbatches * parallel.replicas > 1
    fits = parallel.shards == 1 if parallel.remat else not parallel.precision.startswith("mixed")
    return several and fits and not parallel.timeline_step


class _Seeds:
    """Constant gradients of a stage's results, which all microbatches share.

    TensorFlow copies and optimizes a function for each set of constants that it is called with. It
    would make zeros for each call.
    """

    def __init__(self, stage: StageReplica, scale: tf.Tensor | None):
        self._stage, self._scale = stage, scale
        self._made: dict[str, tf.Tensor] = {}

    def of_loss(self, value: tf.Tensor, divisor: int) -> tf.Tensor:
        """The gradient of a part of the loss."""
        if self._scale is not None:
            return tf.cast(self._scale, value.dtype) / divisor
        return self._once(
            f"{value.dtype.name} {divisor}", lambda: tf.ones([], value.dtype) / divisor
        )

    def zeros(self, place: int, value: tf.Tensor) -> tf.Tensor:
        """The gradient of a result that is no part of the loss."""
        if not value.shape.is_fully_defined():
            return tf.zeros_like(value)
        return self._once(f"zeros {place}", lambda: tf.zeros(value.shape, value.dtype))

    def _once(self, key: str, make: Callable[[], tf.Tensor]) -> tf.Tensor:
        if key not in self._made:
            with tf.control_dependencies(None), self._stage.scope("seeds"):
                self._made[key] = make()
        return self._made[key]


class _Forward(NamedTuple):
    """A microbatch's way forward through a stage, kept for the direction back."""

    traced: bool
    """Whether other passes share its function."""
    tape: tf.GradientTape
    inputs: Nest
    outputs: Nest
    """The last stage has None."""
    changed: dict[int, tf.Tensor]
    penalty: tf.Tensor
    losses: tf.Tensor | None
    """Sum over the examples, and"""
    sums: tf.Tensor | None
    """the sums of the metrics, in the last stage."""

    @property
    def results(self) -> list[tf.Tensor]:
        """The tensors that are there when the pass has ended."""
        results = tf.nest.flatten((self.outputs, self.losses, self.sums))
        return [each for each in results if each is not None]
