"""Splits the large layers of a model over the devices of a stage (tensor parallelism).

Shoeybi et al. 2019, "Megatron-LM: Training multi-billion parameter language models using model
parallelism", arXiv 1909.08053, section 3. A layer is split by *columns* if each shard computes a
part of its output features, by *rows* if each shard takes a part of its input features and the
parts of the output are added up. Where two split layers follow each other, the first is split by
columns and the second by rows, so that one sum per pair remains.
"""
