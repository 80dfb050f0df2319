"""A Keras model whose steps run on a topology: ``parallelize``.

Keras's own trainer does everything: data, loss, metrics, optimizer, callbacks, and what the model's
class overrides. In its steps, a call of the model is divided: its rows into parts, which replicas
and microbatches compute, and its layers over the devices of stages. The outputs are joined, so that
Keras computes loss and metrics of the whole batch, as on one device. The gradients go back the same
way, and the optimizer updates the model's own variables.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src import backend

# Not public; see the pins.
from tensorflow.python.eager import record

from stagecraft import copies, process_state
from stagecraft.common import garbage_collection
from stagecraft.common.errors import SettingError, UserError
from stagecraft.parallel_model import (
    draws,
    examination,
    lockstep,
    parts,
    pinned_calls,
    updates,
    workers,
)
from stagecraft.parallel_model.parts import Part
from stagecraft.parallel_model.placement import Placement, normalizations
from stagecraft.parallel_model.traces import PackedWeights, Traces, UnsharedError
from stagecraft.parallel_model.workers import OTHER_BATCHES, Workers, connected
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import model_graph, structural_keys
from stagecraft.trainer_module.models.layers.dropout import is_replaced
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.models.layers.walk import intercepted, walk
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.call import Weights
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards
from stagecraft.trainer_module.tensor_parallel.split import Split

_log = logging.getLogger(__name__)

_KEY = copies.SESSION

_STEPS = ("train_step", "test_step", "predict_step")
_FUNCTIONS = ("train_function", "test_function", "predict_function")

_EXAMINED = (0, 3, 30, 300)
"""Batches before which the model is examined: the first, and others when weights have moved."""

_EAGER = threading.RLock()
"""Held by an eager step. In TensorFlow (2.16, 2.21), eager operations of several threads read each
other's constants, on all devices but the first one: slices have wrong bounds, without an error."""


def parallelize(model: Any, parallel: ParallelSettings | None = None) -> Any:
    """Makes ``fit``, ``evaluate``, ``predict`` and the like of a model run on a topology.

    They remain Keras's own, with all their arguments. A step computes what it computes on one
    device, also with dropout; ``BatchNormalization`` uses the statistics of its part of the batch,
    as in Keras under ``MirroredStrategy``.

    Args:
        model: a Keras model, compiled or not, built or not. It stays the same object, with the same
            variables. Or a function that builds it, which this function calls when it has
            connected with other processes; ``tf.keras`` is Keras 3 meanwhile.
        parallel: the topology; None: one device, as without this function. With several
            ``workers``, each process calls this function, and then ``fit``.

    Returns:
        The model.

    Raises:
        UserError: a setting does not fit, or the machine lacks the devices.
    """
    parallel = ParallelSettings() if parallel is None else parallel
    check_settings(parallel)
    parallel, devices = connected(parallel)
    if builds(model):
        with process_state.as_tf_keras():
            model = model()
    if not isinstance(model, keras.Layer) or not hasattr(model, "make_train_function"):
        raise refused_model(model)
    check_precision(parallel, model)
    if getattr(model, "_distribute_strategy", None) is not None:
        raise SettingError(
            "model",
            type(model._distribute_strategy).__name__,
            "holds the variables of the model, which was made in its scope",
            "a model that is made without strategy.scope()",
        )
    earlier = session_of(model)
    if earlier is not None:
        earlier.detach()
    if parallel.devices_per_worker * parallel.parts > 1 or parallel.remat or parallel.jit:
        Session(model, parallel, devices).attach()
    elif earlier is not None:
        updates.gather(model, devices.device(0, 0))
    return model


def builds(model: Any) -> bool:
    """Whether it is a function that builds a model; a model is callable, too."""
    return callable(model) and not isinstance(model, type) and not hasattr(model, "call")


def refused_model(model: Any) -> SettingError:
    """The error for what is no model of Keras 3."""
    kind = model if isinstance(model, type) else type(model)
    if "tf_keras" in {each.__module__.partition(".")[0] for each in kind.__mro__}:
        return SettingError(
            "model",
            kind.__name__,
            "is a model of Keras 2: TensorFlow Transform makes tf.keras Keras 2 in each process "
            "that imports it",
            "import keras, and keras in place of tf.keras",
        )
    use = "a keras.Model, or a function that builds one"
    return SettingError("model", kind.__name__, "is not a Keras model", use)


def session_of(model: Any) -> Session | None:
    """The session of a model that :func:`parallelize` has had; None: one device trains it."""
    found: Session | None = vars(model).get(_KEY)
    return found


_HONOURED = frozenset(
    {
        *("strategy", "replicas", "stages", "virtual_stages", "microbatches", "accumulate"),
        *("cuts", "devices", "jit", "remat", "virtual_devices", "precision", "launcher"),
        *("workers", "ps", "all_reduce", "isolated", "max_restarts", "shards", "zero"),
        *("start_timeout_seconds", "silence_timeout_seconds"),
    }
)
"""Settings that this function applies or checks."""


def check_type(parallel: Any) -> None:
    """Refuses what is no ``Parallel``."""
    if not isinstance(parallel, ParallelSettings):
        kind = type(parallel).__name__
        raise SettingError("parallel", kind, "is not a Parallel", "stagecraft.Parallel(…)")


def check_settings(parallel: ParallelSettings) -> None:
    """Refuses settings that would have no effect.

    Raises:
        SettingError: as said, or these are no settings.
    """
    check_type(parallel)
    if not parallel.found.divides_calls:
        fitting = [each.name for each in registries.STRATEGIES.entries() if each.divides_calls]
        raise SettingError(
            "parallel.strategy",
            parallel.strategy,
            "does not work in Keras's own fit",
            f"one of {', '.join(fitting)}, or stagecraft.train in a run_fn",
        )
    defaults = ParallelSettings()
    for name in sorted(parallel.model_fields_set - _HONOURED):
        value = getattr(parallel, name)
        if value != getattr(defaults, name):
            raise SettingError(
                f"parallel.{name}",
                value,
                "has no effect in Keras's own fit",
                f"the default of {name}, or stagecraft.train in a run_fn",
            )


def check_precision(parallel: ParallelSettings, model: Any) -> None:
    """Refuses a precision that is not the model's own.

    Raises:
        SettingError: as said.
    """
    own = model.dtype_policy.name
    if "precision" in parallel.model_fields_set and parallel.precision not in ("auto", own):
        raise SettingError(
            "parallel.precision",
            parallel.precision,
            f"is not that of the model, {own}",
            f"keras.config.set_dtype_policy({parallel.precision!r}) before the model is made",
        )


class _Result(NamedTuple):
    """The results of a part."""

    outputs: Any
    scope: pinned_calls.Scope


class _Examined(BaseException):
    """Leaves a step whose model call has been examined; no ``except Exception`` stops it."""

    def __init__(self, found: Any):
        super().__init__()
        self.found = found


class Session:
    """A model on the devices of a topology."""

    def __init__(self, model: Any, parallel: ParallelSettings, devices: Topology):
        self.model, self.parallel, self.topology = model, parallel, devices
        self._own: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._placement: Placement | None = None
        self._runs = self._training = False
        self._examines: Callable[[Any, Any], Any] | None = None
        self._called = self._agree = False
        self._kinds = examination.Kinds()
        self._batches = {True: 0, False: 0}
        self._sizes: set[tuple[bool, int]] = set()
        self._traced: dict[str, Any] = {}
        self._per_replica = parallel.accumulate * parallel.microbatches
        last = parallel.model_parts - 1
        self._loss_device = devices.device(0, last)
        self.workers = Workers(devices, parallel.all_reduce)
        self.peers = self.workers
        """The processes that divide a step: all, or this one alone."""
        self._homes = parallel.found.homes(parallel)
        self._home_of: dict[int, str] = {}
        self._shards: ModelShards | None = None
        self._splits: Mapping[int, Split] = {}
        """Id of a variable -> how shards divide it."""
        self._traces: dict[Any, Traces] = {}
        """Of each layer and view that parts share; empty again when Keras makes a function."""
        self._shares: bool | None = None
        """Whether parts share traces; None: it is not known yet."""
        self._jit = parallel.jit and parallel.shards == 1  # a group compiles its shards' parts

    def attach(self) -> None:
        """Takes the place of the model's methods."""
        model = self.model
        methods = lockstep.METHODS if self.workers.count > 1 else ()
        names = ("call", *_STEPS, *(f"make_{name}" for name in _FUNCTIONS), *methods)
        self._before = {name: vars(model)[name] for name in names if name in vars(model)}
        self._own = {name: getattr(model, name) for name in names}
        replaced: dict[str, Any] = {"call": self._call}
        for name in _STEPS:
            replaced[name] = functools.partial(self._step, name)
        for name in _FUNCTIONS:
            replaced[f"make_{name}"] = functools.partial(self._make, name)
        for name in methods:
            replaced[name] = lockstep.method(self._own[name], model, self)
        # Not setattr: Keras would track what it finds.
        vars(model).update(replaced | {_KEY: self} | dict.fromkeys(_FUNCTIONS))

    def detach(self) -> None:
        """Gives the methods back."""
        self._traces.clear()
        self._traced.clear()
        for name in (*self._own, _KEY):
            vars(self.model).pop(name, None)
        vars(self.model).update(self._before | dict.fromkeys(_FUNCTIONS))

    def without(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of the model, as they would be without :func:`parallelize`."""
        own = {name: own for name, own in attributes.items() if name not in (*self._own, _KEY)}
        return own | self._before

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """In the block, the model's methods work in this process, without the others."""
        before = self.peers
        functions = {name: vars(self.model).get(name) for name in _FUNCTIONS}
        vars(self.model).update(dict.fromkeys(_FUNCTIONS))  # theirs has the others in its graph
        try:
            with workers.alone() as self.peers:
                yield
        finally:
            self.peers = before
            vars(self.model).update(functions)

    def _make(self, name: str, force: bool = False) -> None:
        """In place of ``make_train_function`` and the like."""
        model = self.model
        if model.jit_compile:
            _log.warning(
                "%s: jit_compile is off, because XLA compiles for one device; "
                "Parallel(jit=True) compiles each device's part",
                model.name,
            )
            model.jit_compile = False
        if self._placement is not None and getattr(model, "optimizer", None) is not None:
            updates.move_state(model.optimizer, self._home)
        if self._shards is not None:
            self._shards.forget_parts()
        self._own[f"make_{name}"](force=force)
        function = getattr(model, name)
        if function is not None and not hasattr(function, _KEY):
            self._traces.clear()
            wrapped = functools.partial(self._predict, function)
            if name != "predict_function":
                wrapped = functools.partial(self._function, function, name == "train_function")
            checked = functools.partial(self._in_own_words, wrapped)
            setattr(checked, _KEY, True)
            setattr(model, name, checked)

    def _in_own_words(self, function: Callable[[Any], Any], batches: Any) -> Any:
        try:
            return function(batches)
        except tf.errors.InvalidArgumentError as error:
            error_of = {parts.OTHER_SHAPES: self._other_shapes, OTHER_BATCHES: _other_batches}
            for text, own in error_of.items():
                if text in str(error):
                    raise own() from None
            raise

    def _other_shapes(self) -> ModelRefusedError:
        return ModelRefusedError(
            self.model.name,
            "returns outputs whose sizes depend on the other rows of a batch, such as the longest "
            "of them, and the topology divides each batch",
            "pad the data to one length, or train in one part",
        )

    def _build(self, name: str, example: Any) -> None:
        """Makes the variables before a step reads them; as in Keras, a trace of the step does.

        Args:
            example: a batch, or its ``tf.TensorSpec``.
        """
        if any(not layer.built for layer in self.model._flatten_layers()):
            step = self._taking_optionals(self._own[name])
            tf.function(step, autograph=False).get_concrete_function(example)
        if name == "train_step" and self._trains_as_keras():
            # TensorFlow traces a step again whose first trace makes variables. What Keras cannot
            # build so, the step builds.
            with contextlib.suppress(Exception):
                self.model._symbolic_build(data_batch=example)
        if not self._agree and self.peers.count > 1:
            self._agree = True
            self.peers.from_chief(lockstep.state(self.model))  # one draw of first weights

    def _trains_as_keras(self) -> bool:
        """Whether a step calls the graph of a functional model, and what ``compile`` has got."""
        model, names = self.model, ("train_step", "compute_loss", "compute_metrics")
        return not model_graph.obstacle(model) and all(
            getattr(type(model), name) is getattr(keras.Model, name) and name not in self._before
            for name in names
        )

    def _has_pure_layers(self) -> bool:
        """Whether equal calls of a layer compute the same: no code of the caller's runs in them."""
        layers = [layer for _, layer in walk(self.model)]
        # Of several processes, only the first can run a loop in a function that is not inlined
        # (TensorFlow 2.16: "Haven't set up remote eager worker"). With unroll, there is no loop.
        if self.workers.count > 1 and any(
            isinstance(each, keras.layers.RNN) and not each.unroll for each in layers
        ):
            return False
        return (
            isinstance(self.model, keras.Model)
            and not model_graph.obstacle(self.model)
            and "call" not in self._before
            and all(map(_is_pure, layers))
        )

    def _taking_optionals(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step that takes None as datasets have it: ``tf.experimental.Optional``."""
        convert = getattr(self.model, "_autoconvert_optionals", None)
        return step if convert is None else convert(step)

    def _predict(self, own: Callable[[Any], Any], batches: Any) -> Any:
        """In place of ``predict_function``: examines the model when due."""
        self._build("predict_step", batches[0])
        # A step of the caller's own may call the model in a function of its own.
        own_step = getattr(type(self.model), "predict_step", None)
        if self.parallel.parts > 1 and own_step is keras.Model.predict_step:
            self._examine(batches[0], "predict_step")
        return own(batches)

    def _function(self, own: Callable[[Any], Any], training: bool, iterator: Any) -> Any:
        """In place of ``train_function`` and ``test_function``: examines the model when due."""
        number, name = self._batches[training], "train_step" if training else "test_step"
        several = self.model.steps_per_execution
        # TensorFlow traces the first step: without garbage collection, that is faster.
        with contextlib.nullcontext() if number else garbage_collection.paused():
            if number == 0:
                example = getattr(iterator, "element_spec", None)
                if example is None:
                    example = next(iterator)
                    iterator = itertools.chain([example], iterator)
                self._build(name, example)
            if self.parallel.parts == 1 or (several != 1 and number not in _EXAMINED):
                self._batches[training] += 1
                return own(iterator)
            batch = next(iterator)
            self._examine(batch, name)
            return own(itertools.chain([batch], itertools.islice(iterator, several - 1)))

    def _examine(self, batch: Any, name: str) -> None:
        training = name == "train_step"
        number, size = self._batches[training], _size(batch)
        self._batches[training] += 1
        is_new = (training, size) not in self._sizes
        if number not in _EXAMINED and not is_new and self._kinds.are_known(training):
            return
        self._sizes.add((training, size))
        step = self._taking_optionals(self._own[name])
        if self._placement is None:
            # TensorFlow traces a function again that moves variables.
            prepare = functools.partial(self._examined, step, training, examine=lambda *_: None)
            tf.function(prepare, autograph=False).get_concrete_function(batch)
        if name not in self._traced:
            self._traced[name] = tf.function(
                functools.partial(self._examined, step, training),
                autograph=False,
                reduce_retracing=True,
            )
        found = self._traced[name](batch)
        if found is None:
            return
        try:
            self._kinds.learn(found, training, self.model)
        except ModelRefusedError as error:
            path = self._examined(step, training, batch, self._undivided)
            if path:
                raise ModelRefusedError(path, error.reason, error.suggestion) from None
            raise

    def _examined(
        self,
        step: Callable[[Any], Any],
        training: bool,
        batch: Any,
        examine: Callable[[Any, Any], Any] | None = None,
    ) -> Any:
        """The result of ``examine`` for a step; None: the step does not call the model."""
        before = self._training, self._runs
        peers, self.peers = self.peers, Workers()
        self._training, self._runs, self._examines = training, True, examine or self._both
        optimizer = getattr(self.model, "optimizer", None)
        try:
            with keras.StatelessScope(), updates.idle(optimizer):  # the step changes nothing
                step(batch)
        except _Examined as stop:
            return stop.found
        finally:
            self._training, self._runs = before
            self._examines, self.peers = None, peers
        return None

    def _step(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """In place of ``train_step`` and the like."""
        self._training, self._called = name == "train_step", False
        self._runs = True
        try:
            self.peers.same(args)
            optimizer = getattr(self.model, "optimizer", None) if self._training else None
            # Workers wait for each other in a step: two models in two orders would wait for ever.
            alone = tf.executing_eagerly() and self.workers.count == 1
            turn = _EAGER if alone else contextlib.nullcontext()
            with turn, tf.device(self._loss_device), updates.at_home(optimizer, self._home):
                result = self._own[name](*args, **kwargs)
        finally:
            self._runs = False
        if not self._called:
            _log.warning(
                "%s: %s does not call the model itself, so one device computes the step",
                self.model.name,
                name,
            )
        return result

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """In place of ``call``: divided in a step; else Keras's own."""
        symbolic = any(
            isinstance(each, keras.KerasTensor) for each in tf.nest.flatten((args, kwargs))
        )
        if symbolic or not self._runs:
            return self._own["call"](*args, **kwargs)
        self._runs = False  # calls inside of this one are Keras's
        try:
            self._prepare(args, kwargs)
            if self._examines:
                raise _Examined(self._examines(args, kwargs))
            self._called = True
            own = self.parallel.parts // self.workers.count
            first, count = self.peers.number * own, self.peers.count * own
            divided, results = self._results(args, kwargs, range(first, first + own + 1), count)
            self._add_losses(divided, results)
            self._assign(divided, results)
            outputs = self._joined(divided, results)
            total = divided[0].rows.total
            return self.peers.joined(outputs, total * first // count, total, self._refuse)
        except UserError as error:
            error._keras_call_info_injected = True  # type: ignore[attr-defined]  # Keras would replace it
            raise
        finally:
            self._runs = True

    def _prepare(self, args: Any, kwargs: Any) -> None:
        """Builds the model, and moves its variables to their devices."""
        model = self.model
        if self._placement is not None:
            return
        if any(not layer.built for layer in model._flatten_layers()):
            backend.compute_output_spec(self._own["call"], *args, **kwargs)
        if self.parallel.parts > 1:
            _check(model)
        placement = Placement(model, self.parallel)
        if self.parallel.shards > 1:
            trace = functools.partial(self._trace, args, kwargs)
            self._shards = ModelShards([model], self.parallel.shards, trace, allow_whole=True)
            self._splits = self._shards.splits
        self._placement = placement
        self._home_of = self._chosen_homes()
        for variable in model.variables:
            updates.move(variable, self._home(variable))
        updates.move_state(getattr(model, "optimizer", None), self._home)

    def _trace(self, args: Any, kwargs: Any, shards: ModelShards) -> None:
        """Calls the model in a graph, for the ways in which shards divide its layers."""

        def call() -> None:
            weights = Weights({}, shards.splits)
            group = groups.active(groups.Traced(shards.count))
            with group, pinned_calls.Scope({}), shards.dividing(self.model, weights):
                self._own["call"](*args, **kwargs)

        tf.function(call, autograph=False).get_concrete_function()

    def _chosen_homes(self) -> dict[int, str]:
        """Id of each variable -> its device, with its optimizer's state.

        The shards of a stage, and with ``zero`` the replicas, share the variables of the stage.
        """
        assert self._placement is not None
        parallel, loads = self.parallel, collections.Counter[str]()
        replicas = range(parallel.replicas if parallel.zero else 1)
        owners = list(itertools.product(replicas, range(parallel.shards)))
        found: dict[int, str] = {}
        for variable in sorted(self.model.variables, key=_bytes, reverse=True):
            stage = self._placement.stage_of.get(id(variable), 0)
            devices = [self.topology.device(replica, stage, shard) for replica, shard in owners]
            home = min(self._homes or devices, key=loads.__getitem__)
            if found.setdefault(id(variable), home) == home:
                loads[home] += _bytes(variable)
        return found

    def _home(self, variable: Any) -> str:
        if self._placement is None:  # the step does not call the model
            return self._loss_device
        return self._home_of.get(id(variable)) or self._device(0, variable)

    def _device(self, replica: int, variable: Any, shard: int = 0) -> str:
        assert self._placement is not None
        stage = self._placement.stage_of.get(id(variable), 0)
        return self.topology.device(replica, stage, shard)

    def _over_shards(
        self, unit: Any, call: Callable[..., Any], replica: int, stage: int
    ) -> Callable[..., Any]:
        """A unit's call, whose large layers the shards of a stage divide."""
        shards = self._shards
        if shards is None or not isinstance(unit, keras.Layer):
            return call
        devices = [self.topology.device(replica, stage, number) for number in range(shards.count)]
        group = [functools.partial(tf.device, device) for device in devices]
        is_own = not is_replaced(unit)

        def run(*args: Any, **kwargs: Any) -> Any:
            weights = pinned_calls.SlicedWeights(shards.splits)
            with groups.active(groups.ShardGroup(group, self.parallel.jit)):
                divided = shards.divided(unit, call, weights) if is_own else call
                with shards.dividing(unit, weights):
                    return divided(*args, **kwargs)

        return run

    def _results(
        self,
        args: Any,
        kwargs: Any,
        bounds: Sequence[int],
        count: int,
        traces: dict[Any, Traces] | None = None,
    ) -> tuple[list[Part], list[_Result]]:
        """The model's call in the parts between bounds, which are numbers of ``count`` parts.

        Args:
            traces: those that calls share; they fill up.
        """
        if self._shares is None:
            self._shares = self.parallel.parts > 1 and self._has_pure_layers()
        traces = self._traces if traces is None else traces
        total = parts.row_count((args, kwargs))
        divided = parts.divide(total, bounds, count)
        replicas = [
            number // self._per_replica % self.topology.replicas if count > 1 else 0
            for number in bounds[:-1]
        ]

        def computed(traced: bool) -> list[_Result]:
            trained = frozenset(map(id, self.model.trainable_variables))
            weights = values = None
            if traced:
                weights = PackedWeights(replicas, self._splits, self._total, not self._examines)
            else:
                values = self._values(replicas)
            results = []
            for place, part in enumerate(divided):
                scope = pinned_calls.Scope({} if values is None else values[place], trained)
                rows = part.rows if count > 1 else None
                taken = (args, kwargs) if rows is None else parts.take((args, kwargs), rows)
                pinned = self._pinned(replicas[place], scope, place, weights, traces)
                with scope, draws.of_rows(rows), pinned as call:
                    results.append(_Result(call(*taken[0], **taken[1]), scope))
            return results

        if (self._shares or self._jit) and not tf.executing_eagerly():
            try:
                return divided, computed(True)
            except UnsharedError:
                if self._jit:
                    reason = "a layer computes by more than its arguments and weights"
                    _log.warning("%s: jit is off, because %s", self.model.name, reason)
                self._shares = self._jit = False
        return divided, computed(False)

    @contextlib.contextmanager
    def _pinned(
        self,
        replica: int,
        scope: pinned_calls.Scope,
        part: int,
        weights: PackedWeights | None,
        traces: dict[Any, Traces],
    ) -> Iterator[Callable[..., Any]]:
        """In the block, the given function calls the model on the devices of a replica.

        Args:
            weights: for calls that are functions; None: they are none.
            traces: of the shared calls; they fill up.
        """
        assert self._placement is not None
        parallel = self.parallel
        remat = parallel.remat or parallel.accumulate > 1

        def pinned(unit: Any, call: Callable[..., Any], stage: int) -> Callable[..., Any]:
            call = self._over_shards(unit, call, replica, stage)
            device = self.topology.device(replica, stage)
            if weights is None:
                return pinned_calls.pinned(call, device, scope, remat=remat)

            def run(*args: Any, **kwargs: Any) -> Any:
                # Traces of shards name their devices, which each replica has for itself.
                key = id(unit), replica if self._shards is not None else 0
                known = traces.get(key) or Traces(unit, self.model, device, self._jit)
                if self._shares:
                    traces[key] = known
                shared = known.shared(call, scope, weights, part, devices, remat)
                return shared(*args, **kwargs)

            devices = [
                [self.topology.device(each, stage, shard) for shard in range(parallel.shards)]
                for each in range(self.topology.replicas)
            ]
            return run

        units = self._placement.units
        if units == [self.model] or (parallel.model_parts == 1 and not parallel.remat):
            yield pinned(self.model, self._own["call"], 0)
            return
        views = {
            id(model): functools.partial(
                _in_a_row, [pinned(view, view.call, stage) for view, stage in of_model]
            )
            for model, of_model in self._placement.views
        }
        if id(self.model) in views and "call" not in self._before:
            yield views[id(self.model)]
            return
        inner = [
            model
            for model, _ in self._placement.views
            if model is not self.model and not is_replaced(model)
        ]
        stages = dict(zip(map(id, units), self._placement.stages, strict=True))

        def wrap(unit: Any, call: Callable[..., Any]) -> Callable[..., Any]:
            placed = views.get(id(unit)) or pinned(unit, call, stages[id(unit)])

            def run(*args: Any, **kwargs: Any) -> Any:
                inside = isinstance(backend.get_stateless_scope(), pinned_calls.Pinned)
                return (call if inside else placed)(*args, **kwargs)  # of another unit

            return run

        with tf.device(self.topology.device(replica, 0)), intercepted([*inner, *units], wrap):
            yield self._own["call"]

    def _values(self, replicas: Sequence[int]) -> list[dict[int, pinned_calls.Value]]:
        """The values of the variables on the devices of replicas, by the ids of variables."""
        variables = list({id(each): each for each in self.model.variables}.values())
        trained = frozenset(map(id, self.model.trainable_variables))
        with backend.AutocastScope(None):
            values = [tf.convert_to_tensor(variable.value) for variable in variables]
        spread: list[list[pinned_calls.Value]] = []
        recording = record.could_possibly_record()
        with record.stop_recording():
            for replica in replicas:
                spread.append([])
                for variable, value in zip(variables, values, strict=True):
                    split = self._splits.get(id(variable))
                    spread[-1].append(self._sent(value, variable, replica, split))
        places = [
            place
            for place, variable in enumerate(variables)
            if id(variable) in trained and values[place].dtype.is_floating
        ]
        sent = [pinned_calls.tensors_of(of_part[place]) for of_part in spread for place in places]

        def backward(*incoming: Any) -> list[tf.Tensor | None]:
            rest = iter(incoming)
            arrived = [[next(rest) for _ in tensors] for tensors in sent]
            return self._total(
                [variables[place] for place in places],
                [arrived[number :: len(places)] for number in range(len(places))],
            )

        if recording and places:
            copies = [tensor for tensors in sent for tensor in tensors]
            taken = [values[place] for place in places]
            noted = iter(pinned_calls.recorded("Spread", copies, taken, backward))
            for of_part in spread:
                for place in places:
                    of_part[place] = pinned_calls.with_tensors(of_part[place], noted)
        keys = [id(variable) for variable in variables]
        return [dict(zip(keys, of_part, strict=True)) for of_part in spread]

    def _total(
        self,
        variables: Sequence[keras.Variable],
        gradients: Sequence[Sequence[Any]],
        number: int = 0,
    ) -> list[Any]:
        """The sums of the gradients of variables, where these are; None where there is none.

        Args:
            gradients: for each variable, some gradients, each as a list of those of its slices.
            number: tells sums of equal sizes apart, in all processes.
        """
        homes = list(map(self._home, variables))
        totals: list[Any] = []
        for variable, home, arrived in zip(variables, homes, gradients, strict=True):
            split = self._splits.get(id(variable))
            with tf.device(home):
                own = [
                    each[0]
                    if split is None
                    else pinned_calls.joined_gradient(each, split, variable)
                    for each in arrived
                ]
                own = [each for each in own if each is not None]
                totals.append(pinned_calls.total(own) if own else None)
        for home in dict.fromkeys(homes):
            here = [
                place
                for place, own in enumerate(homes)
                if own == home and totals[place] is not None
            ]
            sums = self.peers.total([totals[place] for place in here], home, number)
            for place, total in zip(here, sums, strict=True):
                totals[place] = total
        return totals

    def _sent(
        self, value: tf.Tensor, variable: Any, replica: int, split: Split | None
    ) -> pinned_calls.Value:
        """A value on the device of a replica, or its slices on those of the replica's shards."""
        if split is None:
            with tf.device(self._device(replica, variable)):
                return tf.identity(value)
        slices = []
        for shard in range(len(split.sizes)):
            with tf.device(self._home(variable)):
                own = split.cut(value, shard)
            with tf.device(self._device(replica, variable, shard)):
                slices.append(tf.identity(own))
        return pinned_calls.Sliced(slices, split.axis)

    def _joined(self, divided: Sequence[Part], results: Sequence[_Result]) -> Any:
        if self.parallel.parts == 1 or len(results) == self.peers.count == 1:
            return results[0].outputs
        return parts.join([each.outputs for each in results], divided, self._refuse)

    def _refuse(self, output: Any) -> None:
        kind = type(output).__name__ if tf.is_tensor(output) else ""
        raise ModelRefusedError(
            self.model.name,
            f"returns an output without rows, or a {kind} of {output.dtype.name}, which the "
            "topology cannot divide",
            "return a number for each example, or train in one part",
        )

    def _add_losses(self, divided: Sequence[Part], results: Sequence[_Result]) -> None:
        """Adds the losses of layers to the model, as sums or means over the parts."""
        losses = []
        for place in range(_same_number(self.model, results)):
            kind = self._kinds.of_loss(self._training, place)
            terms = []
            for part, result in zip(divided, results, strict=True):
                loss = tf.reduce_sum(result.scope.losses[place])
                if kind == examination.SUM:
                    terms.append(tf.where(part.count > 0, loss, tf.zeros_like(loss)))
                else:
                    terms.append(loss * part.share(loss.dtype))
            losses.append(tf.add_n(terms))
        for loss in self.peers.added(losses):
            # Not self.model.add_loss: a functional model refuses it.
            keras.Layer.add_loss(self.model, loss)

    def _assign(self, divided: Sequence[Part], results: Sequence[_Result]) -> None:
        """Assigns what layers assigned in the parts, put together."""
        whole = len(results) == self.peers.count == 1
        found, terms, terms_of = [], [], []
        for key, (variable, values, before) in _updates(results).items():
            kind = self._kinds.of_variable(key, variable)
            if whole or kind == examination.SAME:
                found.append((variable, values[0]))
                continue
            with tf.device(self._home(variable)):
                terms.append(examination.term(kind, values, before, divided))
            found.append((variable, before if kind == examination.SUM else tf.zeros_like(before)))
            terms_of.append(len(found) - 1)
        for place, total in zip(terms_of, self.peers.sum(terms), strict=True):
            variable, base = found[place]
            found[place] = variable, base + total
        for variable, value in found:
            with tf.device(self._home(variable)), backend.AutocastScope(None):
                variable.assign(value)

    def _undivided(self, args: Any, kwargs: Any) -> str:
        """The path of the layer that cannot be computed in parts; empty: it is not known."""
        with _frozen(self.model), examination.watched(self.model) as whole:
            self._results(args, kwargs, range(2), 1)
        count = self.parallel.parts
        with _frozen(self.model), examination.watched(self.model) as of_parts:
            divided, _ = self._results(args, kwargs, range(count + 1), count)
        return examination.undivided(whole, of_parts, divided)

    def _both(self, args: Any, kwargs: Any) -> examination.Found:
        """The call of the model as a whole, twice, and in parts; normalizations are frozen.

        Of many parts, the first and the last have the rows that they have in a step. All between
        are one.
        """
        count = self.parallel.parts
        bounds = sorted({0, 1, count - 1, count})
        outcomes = []
        # Normalizations that are frozen compute something else.
        traces: dict[Any, Traces] = {} if normalizations(self.model) else self._traces
        with _frozen(self.model):
            for divides in (False, False, True):
                divided, results = self._results(
                    args,
                    kwargs,
                    bounds if divides else range(2),
                    count if divides else 1,
                    traces,
                )
                _same_number(self.model, results)
                outcomes.append(
                    examination.Outcome(
                        [
                            leaf
                            for leaf in tf.nest.flatten(
                                self._joined(divided, results), expand_composites=True
                            )
                            if tf.is_tensor(leaf)
                        ],
                        [
                            [tf.reduce_sum(each) for each in result.scope.losses]
                            for result in results
                        ],
                        {str(key): values for key, (_, values, _) in _updates(results).items()},
                        [part.share(tf.float64) for part in divided],
                    )
                )
        before = {str(key): value for key, (_, _, value) in _updates(results).items()}
        return examination.Found(outcomes[0], outcomes[1], outcomes[2], before)


@contextlib.contextmanager
def _frozen(model: Any) -> Iterator[None]:
    """In the block, normalizations compute with their averages."""

    def frozen(_: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda inputs, training=None, mask=None: call(inputs, training=False, mask=mask)

    with intercepted([layer for _, layer in normalizations(model)], frozen):
        yield


def _is_pure(layer: Any) -> bool:
    own_code = is_replaced(layer) or isinstance(layer, keras.layers.Lambda)
    # In 16 bits, the constants that TensorFlow folds in a function would be seen.
    return (
        structural_keys.is_trusted(type(layer))
        and not own_code
        and tf.as_dtype(layer.compute_dtype).size > 2
    )


def _in_a_row(
    calls: Sequence[Callable[..., Any]],
    inputs: Any,
    training: bool | None = None,
    mask: Any = None,
    **kwargs: Any,
) -> Any:
    """Calls the views of a functional model, as ``Functional.call`` calls its layers."""
    masks: dict[str, Any] = {"mask": mask}
    for call in calls:
        inputs, masks = call(inputs, training=training, **masks, **kwargs), {}
    return inputs


def _bytes(variable: Any) -> int:
    return int(variable.shape.num_elements()) * tf.as_dtype(variable.dtype).size


def _updates(results: Sequence[_Result]) -> dict[int, tuple[Any, list[tf.Tensor], tf.Tensor]]:
    """Id of an assigned variable -> the variable, its value in each part, and its value before."""
    found: dict[int, tuple[Any, list[tf.Tensor], tf.Tensor]] = {}
    variables = {key: each[0] for result in results for key, each in result.scope.updates.items()}
    for key, variable in variables.items():
        before = results[0].scope.given(variable)
        values = [
            result.scope.updates[key][1] if key in result.scope.updates else before
            for result in results
        ]
        found[key] = variable, values, before
    return found


def _same_number(model: Any, results: Sequence[_Result]) -> int:
    """How many losses each part has."""
    counts = {len(result.scope.losses) for result in results}
    if len(counts) > 1:
        raise ModelRefusedError(
            model.name,
            "does not add the same number of losses for each part of a batch",
            "call add_loss in each call, or train in one part",
        )
    return counts.pop()


def _check(model: Any) -> None:
    """Refuses layers that Keras itself does not divide."""
    for path, layer in [(model.name, model), *walk(model)]:
        for attribute, reason in _INDIVISIBLE.items():
            if getattr(layer, attribute, False):
                raise ModelRefusedError(
                    f"{path} ({type(layer).__name__})",
                    reason,
                    f"set {attribute}=False, or train in one part",
                )


_INDIVISIBLE = {
    "stateful": "is stateful: its state has a row for each row of a batch",
    "synchronized": "has synchronized=True, and the topology divides each batch",
}
"""Attribute of a layer -> why its call cannot be divided."""


def _other_batches() -> UserError:
    return UserError(
        "x: the processes do not read the same batches, and each takes its part of every "
        "batch; let all of them read the whole data in the same order, for example with a "
        "seed for shuffle, and seeds in your own functions",
        setting="x",
        suggestion="dataset.shuffle(…, seed=0)",
    )


def _size(batch: Any) -> int:
    first = next(leaf for leaf in tf.nest.flatten(batch) if leaf is not None)
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    shape = getattr(first, "dense_shape", None)
    shape = tf.convert_to_tensor(first).shape if shape is None else shape
    return int(shape[0]) if len(shape) else 0
