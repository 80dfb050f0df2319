"""Tasks for tables, and the kinds of their columns.

from stagecraft.tables import Numeric, Regression

HOUSES = Regression(features={"area": Numeric()}, label="price")
"""

from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.kinds.multi_label import MultiLabel
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.tables.column import Column
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Crossed,
    Hashed,
    Identity,
    Listed,
    Numeric,
    Vocabulary,
)
from stagecraft.trainer_module.data.tasks.tables.dates import Date
from stagecraft.trainer_module.data.tasks.tables.lists import MultiHot, Sequence

__all__ = [
    "BinaryClassification",
    "Bucketized",
    "Classification",
    "Column",
    "Crossed",
    "Date",
    "Hashed",
    "Identity",
    "Listed",
    "MultiHot",
    "MultiLabel",
    "Numeric",
    "Regression",
    "Sequence",
    "Vocabulary",
]
