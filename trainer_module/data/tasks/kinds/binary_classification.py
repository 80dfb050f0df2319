"""One of two classes from a table that ``task.args`` describes."""

from stagecraft.trainer_module.data.tasks.tables.binary_classification import BinaryClassification

BINARY_CLASSIFICATION = BinaryClassification(features={}, label="")
