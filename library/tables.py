"""Tasks for tables, and the kinds of their columns.

from stagecraft.tables import Numeric, Regression

HOUSES = Regression(features={"area": Numeric()}, label="price")
"""

from stagecraft.trainer_module.data.tasks.tables.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.tables.classification import Classification
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
from stagecraft.trainer_module.data.tasks.tables.multi_label import MultiLabel
from stagecraft.trainer_module.data.tasks.tables.regression import Regression

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
