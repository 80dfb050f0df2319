"""The transformers of the papers, one layer at a time, from formulas.

The operations of a layer are those of Megatron-LM with fused kernels (Narayanan et al. 2021,
section 4.2): one for bias and GELU, one for bias, dropout and addition, one for scale, mask and
softmax.
"""

from __future__ import annotations

import dataclasses

from papers.layers import ALL, KERNELS, NOTHING

from stagecraft.trainer_module.models.costs import Operation, StageCost


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer:
    """Sizes of a decoder; one example is a sequence."""

    layers: int
    hidden: int
    inner: int
    heads: int
    vocabulary: int
    length: int
    """Tokens of an example."""
    width: int = 2
    """Bytes of an activation or weight."""
    fuses: str = NOTHING
    """What XLA fuses."""

    def costs(self) -> list[StageCost]:
        """The embedding, each layer, and the logits with their loss."""
        return [self._embedding(), *[self._layer()] * self.layers, self._logits()]

    @property
    def boundary(self) -> int:
        """Bytes of the activations between two layers, for one example."""
        return self.width * self.length * self.hidden

    def _embedding(self) -> StageCost:
        values = self.length * self.hidden
        ops = [self._op(0, 2 * values, split=True), self._elementwise(values, others=1)]
        table = (self.vocabulary + self.length) * self.hidden
        return self._cost("embedding", ops, table, table, pairs=1, given=0)

    def _layer(self) -> StageCost:
        values, scores = self.length * self.hidden, self.heads * self.length**2
        inner = self.length * self.inner
        square, wide = self.hidden**2, self.hidden * self.inner
        matrix = 2 * self.length
        attention = 2 * self.length**2 * self.hidden
        ops = [
            self._elementwise(values),  # normalization
            self._op(3 * matrix * square, 4 * values, 3 * square, split=True),
            self._op(attention, 2 * values + scores, split=True),
            self._op(0, 2 * scores, split=True),  # softmax
            self._elementwise(scores, split=True, library=False),  # dropout
            self._op(attention, 2 * values + scores, split=True),
            self._op(matrix * square, 2 * values, square, split=True),
            self._elementwise(values, others=1),  # bias, dropout, addition
            self._elementwise(values),  # normalization
            self._op(matrix * wide, values + inner, wide, split=True),
            self._elementwise(inner, split=True),  # bias, GELU
            self._op(matrix * wide, values + inner, wide, split=True),
            self._elementwise(values, others=1),  # bias, dropout, addition
        ]
        split = 4 * square + 2 * wide + 3 * self.hidden + self.inner
        return self._cost("layer", ops, split + 6 * self.hidden, split, pairs=2)

    def _logits(self) -> StageCost:
        values, scores = self.length * self.hidden, self.length * self.vocabulary
        table = self.vocabulary * self.hidden
        ops = [
            self._elementwise(values),  # normalization
            self._op(2 * self.length * table, values + scores, table, split=True),
            # The loss in float32: maximum, exponential, sum.
            self._op(0, 3 * (4 // self.width) * scores, split=True),
        ]
        return self._cost("logits", ops, table, table, pairs=1)

    def _op(self, flops: int, moved: int, weights: int = 0, *, split: bool = False) -> Operation:
        return Operation(flops, self.width * moved, self.width * weights, split=split)

    def _elementwise(
        self, size: int, *, others: int = 0, split: bool = False, library: bool = True
    ) -> Operation:
        """An elementwise operation, or a normalization, which XLA fuses with the one before.

        ``others``: inputs of as many elements that other operations make. ``library``: whether the
        one before is a matrix product, or this is a normalization.
        """
        is_fused = self.fuses == ALL or (self.fuses == KERNELS and not library)
        return self._op(0, (0 if is_fused else 2) * size + others * size, split=split)

    def _cost(
        self,
        name: str,
        ops: list[Operation],
        parameters: int,
        split: int,
        pairs: int,
        given: int | None = None,
    ) -> StageCost:
        """``pairs``: of layers that shards divide, each with one exchange."""
        flops = [(op.flops, op.split) for op in ops]
        moved = [(op.moved_bytes / 2, op.split) for op in ops]
        return StageCost(
            first=name,
            last=name,
            layers=1,
            parameters=parameters,
            trainable=parameters,
            frozen=0,
            flops=round(sum(each for each, _ in flops)),
            input_bytes=self.boundary if given is None else given,
            activation_bytes=round(sum(each for each, _ in moved)),
            output_bytes=self.boundary,
            output_tensors=1,
            tied=(),
            kind=name,
            split_parameters=split,
            split_trainable=split,
            split_flops=round(sum(each for each, divided in flops if divided)),
            split_activation_bytes=round(sum(each for each, divided in moved if divided)),
            shard_bytes=2 * pairs * self.boundary,
            operations=tuple(ops),
        )
