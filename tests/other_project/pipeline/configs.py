"""Somebody's configs.py, as TFX's template has it."""

import os

PIPELINE_NAME = "somebody"
ROOT = os.path.abspath(os.environ["SOMEBODYS_ROOT"])
PIPELINE_ROOT = os.path.join(ROOT, "pipeline_root")
METADATA_PATH = os.path.join(ROOT, "metadata.db")
CHECKPOINTS = os.path.join(ROOT, "checkpoints")
PREPROCESSING_FN = "models.preprocessing.preprocessing_fn"
MODEL = "models.net:build"
TRAIN_STEPS = 3
