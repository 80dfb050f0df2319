"""The layers of a model that shards divide, and how; and the calls of these layers.

The ways are chosen while the model is traced once: a layer whose inputs are divided already is
split by rows, so the order of the calls matters. The trace computes nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import blank, model_graph
from stagecraft.trainer_module.models.costs import Whole
from stagecraft.trainer_module.models.layers.dropout import is_replaced
from stagecraft.trainer_module.models.layers.random_state import random_scope
from stagecraft.trainer_module.models.layers.walk import intercepted, walk
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.call import LayerCall, Weights, below
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup, Traced
from stagecraft.trainer_module.tensor_parallel.parts import Part, changed
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule, is_elementwise
from stagecraft.trainer_module.tensor_parallel.split import Slice, Split, Way

LEAST_PARAMETERS = 1024
"""Layers with fewer parameters stay whole: their copies would cost more than they save."""

MOST_WHOLE = 0.5
"""Parameters of a layer that stays whole, at most, by those of the largest stage."""

_EXAMPLES = 2
"""In the trace that chooses the ways."""

_HARMLESS = frozenset(
    {
        *("build", "build_from_config", "compute_mask", "compute_output_shape"),
        *("compute_output_spec", "count_params", "from_config", "get_build_config", "get_config"),
    }
)
"""Attributes that a subclass may define anew: they do not change what ``call`` computes."""

_SEPARABLE = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
"""Regularizers whose loss of a weight is the sum of the losses of its slices."""


class Ruled(NamedTuple):
    """A layer, and the rule for it."""

    path: str
    layer: Any
    rule: ShardRule
    kind: type[keras.Layer]


class ModelShards:
    """The division of a model's layers over shards."""

    def __init__(
        self,
        models: Sequence[keras.Model],
        count: int,
        trace: Callable[[ModelShards], None] | None = None,
        allow_whole: bool = False,
    ):
        """Chooses how to divide each layer.

        Args:
            models: the parts of the model, in order; all are built.
            count: number of shards.
            trace: traces the models, whose layers the given object divides; None: each model by
                itself.
            allow_whole: accept a layer that cannot be divided and has most of the largest stage.

        Raises:
            SettingError: no layer can be divided, or one that cannot has most of the largest stage.
        """
        self.count = count
        self._ruled = {
            id(layer): Ruled(path, layer, *found)
            for model in models
            for path, layer in walk(model)
            if (found := _rule(layer)) is not None
        }
        self._ways: dict[int, Way | None] = {}
        self._parts: dict[tuple[int, tuple[int, ...]], Part] = {}
        self._slices: dict[tuple[int, int], Slice] = {}
        self.splits: dict[int, Split] = {}
        """Id of a divided variable -> its slices."""
        self.reasons: dict[str, str] = {}
        """Path of a layer that stays whole in spite of its rule -> why."""
        if trace is not None:
            trace(self)
        else:
            for model in models:
                self._choose(model)
        # The engines make the slices now: a layer that only inference calls stays whole.
        self._ways = {key: self._ways.get(key) for key in self._ruled}
        self._check(models, allow_whole)

    def ways(self) -> dict[str, Way]:
        """Path of each layer with divided weights -> how it is divided."""
        return {self._ruled[key].path: way for key, way in self._ways.items() if way and way.splits}

    def whole(self, model: keras.Model) -> list[Whole]:
        """The layers of a part of the model that have weights of their own that stay whole."""
        owners: dict[int, tuple[str, Any, int]] = {}
        for path, layer in walk(model):  # inner layers come last
            for variable in layer.weights:
                if id(variable) not in self.splits:
                    owners[id(variable)] = path, layer, math.prod(variable.shape)
        found: dict[str, Whole] = {}
        for path, layer, size in owners.values():
            before = found[path].parameters if path in found else 0
            kind, reason = type(layer).__name__, self._reason(layer)
            found[path] = Whole(path, kind, before + size, reason)
        return list(found.values())

    def _reason(self, layer: Any) -> str:
        """Why a layer has weights that stay whole."""
        ruled = self._ruled.get(id(layer))
        if ruled is None:
            return "has no rule for its type"
        if ruled.path in self.reasons:
            return self.reasons[ruled.path]
        if any(id(each) in self.splits for each in layer.weights):
            return "adds the rest to the sum of all shards"
        # The projections of an only head, and what training does not call.
        return "is called as a whole"

    def _check(self, models: Sequence[keras.Model], allow_whole: bool) -> None:
        """Refuses shards that would not make the devices' share of the stages smaller."""
        setting = "parallel.shards"
        if not self.splits:
            known = "; ".join(f"{path} {why}" for path, why in list(self.reasons.items())[:3])
            raise SettingError(
                setting,
                self.count,
                "finds no layer to divide" + (f" ({known})" if known else ""),
                "parallel.shards: 1, with parallel.stages or parallel.replicas for the other "
                "devices",
            )
        if allow_whole:
            return
        largest = max(sum(math.prod(each.shape) for each in model.variables) for model in models)
        for each in itertools.chain.from_iterable(map(self.whole, models)):
            # In a small stage, it takes no more memory than others.
            if each.parameters > MOST_WHOLE * largest:
                raise SettingError(
                    setting,
                    self.count,
                    f"cannot divide the layer {each.path} ({each.kind}), which has "
                    f"{each.parameters / largest:.0%} of the parameters of the largest stage and "
                    f"{each.reason}",
                    "parallel.shards: 1, or a rule for the layer (stagecraft.shard_rules)",
                )

    def rules(self, model: keras.Model) -> list[ShardRule]:
        """The rules of a part of the model."""
        return [self._ruled[id(each)].rule for _, each in walk(model) if id(each) in self._ruled]

    def repeat(self, model: keras.Model, like: keras.Model) -> None:
        """Divides the layers of a part of the model as those of one that computes the same."""
        for (_, layer), (_, known) in zip(walk(model), walk(like), strict=True):
            if id(known) not in self._ways:
                continue
            one, other = self._ruled[id(layer)], self._ruled[id(known)]
            way = self._ways[id(layer)] = self._ways[id(known)]
            if other.path in self.reasons:
                self.reasons[one.path] = self.reasons[other.path]
            if way:
                variables = {below(layer, each): each for each in layer.variables}
                self.splits |= {id(variables[name]): way.splits[name] for name in way.splits}

    def forget_parts(self) -> None:
        """Lets the next calls make smaller layers anew, as layers are then."""
        self._parts.clear()

    def entries(self, variable: keras.Variable) -> list[Any]:
        """The shards' entries of a variable: a slice each, or the first one the variable."""
        split = self.splits.get(id(variable))
        if split is None:
            return [variable]
        for shard in range(self.count):
            if (id(variable), shard) not in self._slices:
                self._slices[id(variable), shard] = Slice(variable, split, shard)
        return [self._slices[id(variable), shard] for shard in range(self.count)]

    def held(self, variables: Sequence[keras.Variable], shard: int) -> list[Any]:
        """The entries of some variables on a shard: slices, and on the first shard all others."""
        all_entries = (self.entries(variable) for variable in variables)
        return [entries[shard] for entries in all_entries if shard < len(entries)]

    @contextlib.contextmanager
    def dividing(self, model: Any, weights: Weights) -> Iterator[None]:
        """In the block, calls of the model's layers are divided over the current shard group.

        A layer whose ``call`` somebody has replaced stays whole.

        Args:
            model: a part of the model.
            weights: the slices of its divided variables.
        """
        layers = [
            layer for _, layer in walk(model) if id(layer) in self._ruled and not is_replaced(layer)
        ]
        divided = functools.partial(self.divided, weights=weights)
        with intercepted(layers, divided), changed(list(self._activations(model))):
            yield

    def _activations(self, model: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Activations that layers without a rule call, for pieces of divided tensors."""
        group = groups.current()
        assert group is not None
        for _, layer in walk(model):
            if id(layer) not in self._ruled:
                for name, value in vars(layer).items():
                    if "activation" in name and value is not None and is_elementwise(value):
                        yield layer, {name: functools.partial(_on_pieces, group, value)}

    @contextlib.contextmanager
    def regularized(self, model: keras.Model, weights: Weights) -> Iterator[None]:
        """In the block, each shard computes its slice's part of a regularizer's loss."""
        group, replaced = groups.current(), []
        assert group is not None
        try:
            for variable in model.trainable_variables:
                split = self.splits.get(id(variable))
                if split is not None and type(variable.regularizer) in _SEPARABLE:
                    replaced.append((variable, variable.regularizer))
                    variable.regularizer = _OfSlices(variable, group, weights, split)
            yield
        finally:
            for variable, regularizer in replaced:
                variable.regularizer = regularizer

    def _choose(self, model: keras.Model) -> None:
        """Traces a model, whose first call of each layer chooses the layer's way."""
        group = Traced(self.count)

        def call(given: Any) -> Any:
            step, rows = tf.constant(0, tf.int64), tf.range(_EXAMPLES, dtype=tf.int64)
            weights = Weights({}, self.splits)
            with groups.active(group), random_scope(step, rows), self.dividing(model, weights):
                return model(given, training=True)

        specs = model_graph.specs(model_graph.sized(model), _EXAMPLES)
        blank.trace(model.variables, call, specs)

    def divided(self, layer: Any, own: Callable[..., Any], weights: Weights) -> Callable[..., Any]:
        """A layer's ``call``, divided over the current shard group; ``own`` if it has no rule."""
        found, group = self._ruled.get(id(layer)), groups.current()
        if found is None:
            return own
        assert group is not None

        def call(*args: Any, **kwargs: Any) -> Any:
            if group.is_inside:
                return own(*args, **kwargs)
            divided = LayerCall(layer, found.kind, own, group, weights, self._parts, args, kwargs)
            if id(layer) not in self._ways:
                self._ways[id(layer)] = self._way(found, divided)
            way = self._ways[id(layer)]
            # A layer may have got an adapter or another activation since.
            if way is None or found.rule.obstacle(layer, group.count):
                return own(*args, **kwargs)
            return found.rule.run(divided, way)

        return call

    def _way(self, found: Ruled, call: LayerCall) -> Way | None:
        weights = found.layer.weights
        reason = found.rule.obstacle(found.layer, self.count)
        is_small = bool(weights) and found.layer.count_params() < LEAST_PARAMETERS
        if not reason and is_small and not call.is_divided:
            reason = f"has fewer than {LEAST_PARAMETERS:,} parameters"
        if not reason and any(_constrained(weight) for weight in weights):
            reason = "has a constraint that needs the whole weight"
        if reason:
            self.reasons[found.path] = reason
            return None
        way = found.rule.choose(call)
        if way is None:
            if weights:
                self.reasons[found.path] = "takes an input that is not divided"
            return None
        if not call.variables.keys() >= way.splits.keys():
            self.reasons[found.path] = "uses a weight of another layer"
            return None
        splits = {id(call.variable(name)): split for name, split in way.splits.items()}
        if any(self.splits.get(key, split) != split for key, split in splits.items()):
            self.reasons[found.path] = "has a weight that another layer divides differently"
            return None
        self.splits |= splits
        return way


def _constrained(weight: keras.Variable) -> bool:
    return type(weight.constraint) not in (type(None), keras.constraints.NonNeg)


def _rule(layer: Any) -> tuple[ShardRule, type[keras.Layer]] | None:
    """The rule for a layer, and the class that the rule names; None: there is none."""
    parts = [layer, *(inner for _, inner in walk(layer))]
    if any(map(is_replaced, parts)):
        return None
    for rule in registries.SHARD_RULES.entries():
        for name in rule.layers:
            kind = _class(name, type(layer))
            if kind and isinstance(layer, kind) and _computes_alike(type(layer), kind):
                return rule, kind
    return None


def _computes_alike(own: type, kind: type) -> bool:
    """Whether a subclass leaves ``call`` as it is, and everything that ``call`` may use.

    Keras's layers call methods that users override, such as ``convolution_op`` of convolutions and
    ``_compute_attention``. A smaller layer of class ``kind`` would not call these.
    """
    classes = own.__mro__[: own.__mro__.index(kind)]
    names = {name for each in classes for name in vars(each) if not name.startswith("__")}
    return not any(hasattr(kind, name) for name in names - _HARMLESS)


def _class(name: str, own: type) -> Any:
    """The class that a rule names; None: this version of Keras or KerasHub has none.

    KerasHub moves its modules, and need not be installed: a class of it is known by its name.
    """
    package, _, inside = name.partition(":")
    if package == "keras_hub":
        found = (each for each in own.__mro__ if each.__name__ == inside)
        return next((x for x in found if x.__module__.partition(".")[0] == package), None)
    return pkgutil.resolve_name(name) if inside else getattr(keras.layers, name, None)


def _on_pieces(group: ShardGroup, activation: Callable[..., Any], inputs: Any, **more: Any) -> Any:
    """Applies an activation to a tensor; to its pieces, if it is divided."""
    pieces = None if group.is_inside else group.pieces(inputs)
    if pieces is None:
        return activation(inputs, **more)
    return group.join(group.map(lambda _, piece: activation(piece, **more), pieces))


class _OfSlices(keras.regularizers.Regularizer):
    """The loss of a divided weight: each shard computes that of its slice."""

    def __init__(self, variable: keras.Variable, group: ShardGroup, weights: Weights, split: Split):
        self._own, self._group = variable.regularizer, group
        self._slices = weights.of(variable, split, group.count)

    def __call__(self, _: Any) -> tf.Tensor:
        return self._group.total(self._group.map(lambda _, part: self._own(part), self._slices))
