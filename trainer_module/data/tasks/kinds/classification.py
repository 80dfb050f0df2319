"""One of several classes from a table; ``task.args`` declare the table."""

from stagecraft.trainer_module.data.tasks.tables.classification import Classification

CLASSIFICATION = Classification({}, "")
