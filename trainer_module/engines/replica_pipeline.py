"""A replica: stages in a row, through which microbatches go forward and back.

In the order of :mod:`stagecraft.trainer_module.pipeline_parallel.schedule`, which draws it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.data.tasks import softmax
from stagecraft.trainer_module.engines import step_metrics
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.engines.stage_replica import StageReplica
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.pipeline_parallel.shared_function import (
    Call,
    Group,
    Packed,
    Repeated,
    Shared,
)
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings
from stagecraft.trainer_module.tensor_parallel import group as groups, vocabulary
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup

_LEAST_CALLS = 256
"""Calls of layers in a step from which on its passes share functions."""

Values = Sequence[tf.Tensor]
"""Of the variables of a stage."""

Traces = dict[tuple[int, Any], Any]
"""Number of a stage, and which of its outputs have gradients -> its passes; or a shard -> the
function that adds up its sums."""


class MicrobatchSums(NamedTuple):
    """The sums of one stage over the parts of the global batch."""

    gradients: Any
    """A list of tensors; of traced passes, packed until the last one is added."""
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
        self._dtype = step_metrics.metrics_dtype(settings)
        self._passes = schedule.in_order(
            parallel.microbatch_schedule,
            parallel.microbatches,
            parallel.stages,
            parallel.virtual_stages,
        )
        self._devices = parallel.stages
        self._divisors = parts, settings.train.batch_size
        """Of the penalty and of the sum over the examples: the quotients are parts of the loss."""
        layers = sum(1 for stage in self.stages for _ in walk(stage.stage.model))
        self._traces = traces if _shares_traces(parallel, layers) else None
        """The traces; None: each pass has its own ops."""
        self._device_type = tf.DeviceSpec.from_string(stages[0].device).device_type
        self.passes_back: list[list[bool]] = []
        """Per stage: whether the stage before it needs the gradient of each of its inputs."""
        self.freeze(())

    def freeze(self, frozen: Collection[str]) -> None:
        """Leaves the weights with these paths out of the steps that are traced next."""
        self.passes_back = [[]]
        for stage in self.stages[:-1]:
            model = stage.stage.model
            of_inputs = self.passes_back[-1] or [False] * len(model.inputs)
            self.passes_back.append(model_graph.have_gradients(model, of_inputs, frozen))
        self._passing = [
            tuple(place for place, has in enumerate(each) if has)
            for each in [*self.passes_back[1:], []]
        ]
        """Per stage: places of the outputs for which a gradient arrives."""
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
    ) -> list[MicrobatchSums]:
        """All microbatches forward and backward; the sums of each shard of each stage.

        Data dependencies order the passes across devices. On a device, each pass waits for the one
        before it: otherwise the executor would alternate between all microbatches.

        Args:
            batch: each tensor ``[microbatches, examples, ...]``.
            rows: int64 ``[microbatches, examples]``, the examples' rows in the global batch.
            scale: of the loss, for gradients that fit into float16; None: 1.
        """
        given: list[Any] = list(values)
        if self._traces is not None:
            given = [self._packed(number, each) for number, each in enumerate(values)]
        rows_of = tf.unstack(rows)
        passed: dict[tuple[int, int], _Forward] = {}
        incoming: dict[tuple[int, int], dict[int, tf.Tensor]] = {}
        sums: dict[int, list[MicrobatchSums]] = {}
        seeds: list[_Seeds] = [_Seeds(stage, scale) for stage in self.stages]
        latest: list[list[tf.Tensor]] = [[] for _ in range(self._devices)]
        for direction, k, m in self._passes:
            device = k % self._devices
            with self.scope(k, f"{direction}{m}", latest[device]):
                if direction == schedule.FORWARD:
                    source = passed[k - 1, m].outputs if k else batches.take(batch.inputs, m)
                    is_last = k == len(self.stages) - 1
                    compared = batches.take(tuple(batch[1:]), m) if is_last else ()
                    # The copies on this device, which the tape watches.
                    inputs = tf.nest.map_structure(tf.identity, source)
                    with tf.control_dependencies(tf.nest.flatten(inputs)):
                        passed[k, m] = self._forward(
                            k, given[k], inputs, compared, rows_of[m], step
                        )
                    latest[device] = passed[k, m].results
                    continue
                forward = passed.pop((k, m))
                arrived = {i: tf.identity(v) for i, v in incoming.pop((k, m), {}).items()}
                with tf.control_dependencies(list(arrived.values())):
                    if any(place not in arrived for place in forward.passing):
                        # The function's gradient would take zeros. The weights behind them would
                        # then seem to have a gradient, and zero times infinity is NaN.
                        self._passing[k] = tuple(arrived)
                        forward = self._forward(k, given[k], forward.inputs, (), rows_of[m], step)
                    gradients, back = self._backward(k, values[k], forward, arrived, seeds[k])
                latest[device] = [*_flat(gradients), *back.values()]
                incoming[k - 1, m] = back
            new = self._of_shards(k, gradients, forward)
            sums[k] = [
                self._plus(k, shard, sums[k][place], each) if k in sums else each
                for place, (shard, each) in enumerate(zip(self._shards[k], new, strict=True))
            ]
        return [
            self._unpacked(shard, each)
            for k, shards in enumerate(self._shards)
            for shard, each in zip(shards, sums[k], strict=True)
        ]

    def _groups(self, number: int, places: Iterable[int]) -> list[Group]:
        """Per shard of a stage, its device, and those of the places that it owns."""
        shards, owner = self._shards[number], self.stages[number].stage.owner
        return [
            (
                shard.device if len(shards) > 1 else "",
                [place for place in places if owner(place) == shard.shard],
            )
            for shard in shards
        ]

    def _packed(self, number: int, values: Values) -> Packed:
        """The values of a stage, for its traced passes."""
        with self.scope(number, "pack"):
            return Packed.of(values, self._groups(number, range(len(values))))

    def _unpacked(self, shard: StageReplica, sums: MicrobatchSums) -> MicrobatchSums:
        if self._traces is None:
            return sums
        with shard.scope("unpack"):
            return sums._replace(gradients=sums.gradients.values())

    def read(self, number: int, averaged: bool = False) -> Values:
        """The values of a stage, each on its shard's device."""
        read = [shard.read(averaged) for shard in self._shards[number]]
        weights, states = zip(*read, strict=True)
        return [value for values in (*weights, *states) for value in values]

    def infer(self, number: int, inputs: Nest) -> Nest:
        """The outputs of a stage in an evaluation."""
        values = self.read(number, averaged=True)
        inputs = tf.nest.map_structure(tf.identity, inputs)
        return self.stages[number].stage.infer(values, inputs)

    @contextlib.contextmanager
    def scope(self, number: int, part: str, after: Sequence[Any] = ()) -> Iterator[None]:
        """In the block, ops run on a stage's device, and on those of its other shards."""
        with self.stages[number].scope(part, after), self._dividing(number, part):
            yield

    @contextlib.contextmanager
    def _dividing(self, number: int, part: str) -> Iterator[None]:
        shards = self._shards[number]
        if len(shards) == 1:
            yield
            return
        scopes = [functools.partial(shard.scope, part) for shard in shards]
        group = ShardGroup(scopes, self.stages[number].stage.jit)
        find = functools.partial(vocabulary.Logits.find, group)
        with groups.active(group), softmax.dividing(find):
            yield

    def _of_shards(
        self, number: int, gradients: Sequence[Any], forward: _Forward
    ) -> list[MicrobatchSums]:
        """Each shard's part of the results of a pass."""
        shards, owner = self._shards[number], self.stages[number].stage.owner
        here = tf.identity if len(shards) > 1 else tf.convert_to_tensor
        parts = []
        for shard, own in zip(shards, gradients, strict=True):
            with shard.scope("accumulate"):
                changed = {
                    i: here(v) for i, v in forward.changed.items() if owner(i) == shard.shard
                }
                metrics = forward.metrics if shard.shard == 0 else []
                kept = own if isinstance(own, Packed) else list(map(here, own))
                parts.append(MicrobatchSums(kept, changed, metrics))
        return parts

    def _plus(
        self, number: int, shard: StageReplica, one: MicrobatchSums, other: MicrobatchSums
    ) -> MicrobatchSums:
        with shard.scope("accumulate"):
            if self._traces is None:
                return MicrobatchSums(*step_metrics.plus(one, other))
            key = number, f"shard {shard.shard}"
            if key not in self._traces:
                self._traces[key] = _Sum(one, self._device_type)
            return self._traces[key](one, other)

    def _forward(
        self,
        number: int,
        values: Values | Packed,
        inputs: Nest,
        compared: tuple[Nest, tf.Tensor] | tuple[()],
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> _Forward:
        """The forward pass of a microbatch through a stage, on its device.

        Args:
            compared: targets and weights, for the last stage.
        """
        given = inputs, compared, rows, step
        if isinstance(values, Packed):
            call = self._trace(number)(values, *given)
            return _Forward(call, self._passing[number], None, inputs, *call.results)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.stages[number].stage.trained(values))
            tape.watch([each for each in tf.nest.flatten(inputs) if each.dtype.is_floating])
            computed = self._compute(number, values, *given)
        return _Forward(None, (), tape, inputs, *computed)

    def _trace(self, number: int) -> Shared:
        """The passes through a stage."""
        assert self._traces is not None
        passing = self._passing[number]

        def function(values: Sequence[tf.Tensor], *given: Any) -> tuple[Any, Sequence[int]]:
            results = self._compute(number, values, *given)
            first = len(tf.nest.flatten(results[0]))
            return results, [*passing, *range(first, first + len(results[1]))]

        key = number, passing
        if key not in self._traces:
            # Not the scope of one pass: a timeline would take all passes for this one.
            scope = functools.partial(self._dividing, number, "shared")
            self._traces[key] = Shared(function, self._device_type, fills=True, scope=scope)
        return self._traces[key]

    def _compute(
        self,
        number: int,
        values: Values,
        inputs: Nest,
        compared: tuple[Nest, tf.Tensor] | tuple[()],
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[Any, ...]:
        """The fields of :class:`_Forward` from ``outputs`` on."""
        outputs, changed, penalty = self.stages[number].stage(values, inputs, step, rows)
        if not compared:
            return outputs, [penalty], changed, [self._loss([penalty])]
        batch = Batch(inputs, *compared)
        losses = [penalty, self._objective.loss(outputs, batch)]
        return [], losses, changed, [self._loss(losses), self._objective.sums(outputs, batch)]

    def _loss(self, losses: Sequence[tf.Tensor]) -> tf.Tensor:
        """The part of the global batch's loss."""
        pairs = zip(losses, self._divisors, strict=False)
        return tf.add_n([tf.cast(value / divisor, self._dtype) for value, divisor in pairs])

    def _backward(
        self,
        number: int,
        values: Values,
        passed: _Forward,
        incoming: Mapping[int, tf.Tensor],
        seeds: _Seeds,
    ) -> tuple[list[Any], dict[int, tf.Tensor]]:
        """The vector-Jacobian product of a stage.

        Args:
            incoming: gradients of the outputs by their index, from the stage after this one; of
                the last stage, none.

        Returns:
            Per shard, the gradients of the trained weights; and, by their index, of the inputs
            whose gradients the stage before needs.
        """
        stage = self.stages[number].stage
        wanted = [index for index, has in enumerate(self.passes_back[number]) if has]
        trained = stage.trained(range(len(stage.trainable)))
        groups = self._groups(number, trained)
        arrived = [
            *incoming.values(),
            *map(seeds.of_loss, passed.losses, self._divisors),
        ]
        if passed.call is not None:
            found = passed.call.gradients(arrived, groups, wanted)
            gradients: list[Any] = found.weights.split(groups)
            has_gradient = [found.has_gradient[place] for place in trained]
            raw = found.arguments
        else:
            inputs, outputs = map(tf.nest.flatten, (passed.inputs, passed.outputs))
            own = stage.trained(values)
            targets = [*(outputs[index] for index in incoming), *passed.losses]
            sources = [*own, *(inputs[index] for index in wanted)]
            assert passed.tape is not None
            raw = passed.tape.gradient(targets, sources, output_gradients=arrived)
            dense, has_gradient = step_metrics.connected(raw[: len(own)], own)
            by_place = dict(zip(trained, dense, strict=True))
            gradients = [[by_place[place] for place in places] for _, places in groups]
            raw = raw[len(own) :]
        flags = iter(has_gradient)
        for shard in self._shards[number]:
            shard.connected = [next(flags) for _ in shard.trained]
        back = dict(zip(wanted, raw, strict=True))
        # Nothing goes back through a gradient that a layer stops.
        for index, gradient in back.items():
            self.passes_back[number][index] = gradient is not None
        given = {i: tf.convert_to_tensor(v) for i, v in back.items() if v is not None}
        return gradients, given


def _shares_traces(parallel: ParallelSettings, layers: int) -> bool:
    """Whether all passes through a stage share a function; otherwise, each has its own ops.

    To call a function takes the executor longer than to run the ops of a few layers, and these are
    traced in seconds for all passes. XLA would compile them for each pass.
    """
    passes = parallel.microbatches * parallel.replicas
    is_small = layers * passes < _LEAST_CALLS and not parallel.jit and parallel.shards == 1
    return passes > 1 and not is_small


class _Sum:
    """A function that adds up two sums like ``one``, with packed gradients."""

    def __init__(self, one: MicrobatchSums, device_type: str):
        self._like, self._device = one, f"/device:{device_type}:*"
        self._call = Repeated(self._run)

    def __call__(self, one: MicrobatchSums, other: MicrobatchSums) -> MicrobatchSums:
        return self._packed(self._call([*_tensors(one), *_tensors(other)]))

    def _packed(self, tensors: Sequence[tf.Tensor]) -> MicrobatchSums:
        rest = iter(tensors)
        packed = self._like.gradients
        gradients = packed._replace(variants=[next(rest) for _ in packed.variants])
        changed = {place: next(rest) for place in self._like.changed}
        return MicrobatchSums(gradients, changed, list(rest))

    def _run(self, *given: tf.Tensor) -> list[tf.Tensor]:
        half = len(given) // 2
        unpacked = []
        for tensors in (given[:half], given[half:]):
            sums = self._packed(tensors)
            with tf.device(self._device):
                unpacked.append(sums._replace(gradients=sums.gradients.by_place()))
        added = MicrobatchSums(*step_metrics.plus(*unpacked))
        with tf.device(self._device):
            packed = Packed.of(added.gradients, self._like.gradients.groups)
        return _tensors(added._replace(gradients=packed))


def _tensors(sums: MicrobatchSums) -> list[tf.Tensor]:
    return [*sums.gradients.variants, *sums.changed.values(), *sums.metrics]


def _flat(gradients: Sequence[Any]) -> list[tf.Tensor]:
    parts = (each.variants if isinstance(each, Packed) else each for each in gradients)
    return [tensor for part in parts for tensor in part]


class _Seeds:
    """Constant gradients of the parts of the loss, which all microbatches share.

    TensorFlow copies and optimizes a function for each set of constants that it is called with.
    """

    def __init__(self, stage: StageReplica, scale: tf.Tensor | None):
        self._stage, self._scale = stage, scale
        self._made: dict[str, tf.Tensor] = {}

    def of_loss(self, value: tf.Tensor, divisor: int) -> tf.Tensor:
        """The gradient of a part of the loss."""
        if self._scale is not None:
            return tf.cast(self._scale, value.dtype) / divisor
        key = f"{value.dtype.name} {divisor}"
        if key not in self._made:
            with tf.control_dependencies(None), self._stage.scope("seeds"):
                self._made[key] = tf.ones([], value.dtype) / divisor
        return self._made[key]


class _Forward(NamedTuple):
    """A microbatch's way forward through a stage, kept for the direction back."""

    call: Call | None
    """Of the functions that all passes share; None: the pass has its own ops."""
    passing: tuple[int, ...]
    """Places of the outputs for which the functions take a gradient."""
    tape: tf.GradientTape | None
    """Of a pass with its own ops."""
    inputs: Nest
    outputs: Nest
    """The last stage has none."""
    losses: list[tf.Tensor]
    """The penalty, and in the last stage the sum over the examples."""
    changed: dict[int, tf.Tensor]
    metrics: list[tf.Tensor]
    """The metrics of ``MicrobatchSums``."""

    @property
    def results(self) -> list[tf.Tensor]:
        """The tensors that are there when the pass has ended."""
        return tf.nest.flatten((self.outputs, self.losses, self.metrics))
