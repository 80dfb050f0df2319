"""TFMA's metrics without AutoGraph, on every worker of Beam.

Keras metrics pass their Python to AutoGraph at every batch, even where they run eagerly, as in
TFMA. This changes no result. AutoGraph is on or off for one thread of one process, and Beam runs
metrics in threads of its workers, so the function that runs there turns AutoGraph off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as tfma

_off = tf.autograph.experimental.do_not_convert


class _CombineFn(tfma._ComputationsCombineFn):
    """TFMA's function that computes all metrics; workers import it by name."""

    create_accumulator = _off(tfma._ComputationsCombineFn.create_accumulator)
    add_input = _off(tfma._ComputationsCombineFn.add_input)
    merge_accumulators = _off(tfma._ComputationsCombineFn.merge_accumulators)
    compact = _off(tfma._ComputationsCombineFn.compact)
    extract_output = _off(tfma._ComputationsCombineFn.extract_output)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Makes TFMA compute metrics without AutoGraph in the pipelines that the block builds."""
    stock, tfma._ComputationsCombineFn = tfma._ComputationsCombineFn, _CombineFn
    try:
        yield
    finally:
        tfma._ComputationsCombineFn = stock
