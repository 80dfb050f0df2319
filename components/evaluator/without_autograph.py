"""TFMA's metrics without AutoGraph, on every worker of Beam.

Keras metrics pass their Python to AutoGraph at every batch, even where they run eagerly, as in
TFMA. This changes no result. AutoGraph is on or off for one thread of one process, and Beam runs
metrics in threads of its workers, so the function that runs there turns AutoGraph off. Workers
import this module, which therefore imports no TFX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as tfma

_off = tf.autograph.experimental.do_not_convert


class _CombineFn(tfma._ComputationsCombineFn):
    """TFMA's function that computes all metrics; workers import it by name."""

    @_off
    def create_accumulator(self, *args: Any) -> Any:
        return super().create_accumulator(*args)

    @_off
    def add_input(self, *args: Any) -> Any:
        return super().add_input(*args)

    @_off
    def merge_accumulators(self, *args: Any) -> Any:
        return super().merge_accumulators(*args)

    @_off
    def compact(self, *args: Any) -> Any:
        return super().compact(*args)

    @_off
    def extract_output(self, *args: Any) -> Any:
        return super().extract_output(*args)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Makes TFMA compute metrics without AutoGraph in the pipelines that the block builds."""
    stock, tfma._ComputationsCombineFn = tfma._ComputationsCombineFn, _CombineFn
    try:
        yield
    finally:
        tfma._ComputationsCombineFn = stock
