"""Any number of labels from a table that ``task.args`` describes."""

from stagecraft.trainer_module.data.tasks.tables.multi_label import MultiLabel

MULTI_LABEL = MultiLabel(features={}, label="")
