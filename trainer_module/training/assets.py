"""Files that an export adds to the SavedModel, in the folder that TensorFlow leaves to others."""

from __future__ import annotations

KERAS = "assets.extra/model.keras"
"""The model as a file of Keras, with ``train.export_keras``."""

METRICS = "assets.extra/metrics.json"
"""Task; name and size of each metric in the signature ``evaluation``, in the order of columns."""

SAMPLES = "assets.extra/samples.json"
"""``Task.samples``, if there are any."""

CLASSES = "assets.extra/classes.json"
"""``Task.class_names``, if Transform found the classes."""
