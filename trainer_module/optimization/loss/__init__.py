"""The loss of a training: the task's own, or the one of ``train.loss``."""
