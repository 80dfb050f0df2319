"""Pickles of the caller's objects, for other processes."""

from __future__ import annotations

import copyreg
import io
import sys
from typing import Any

import cloudpickle


class Pickler(cloudpickle.CloudPickler):
    """cloudpickle, but for losses of Keras: with all arguments, and the classes of the caller's.

    Keras pickles a loss as its ``get_config``, which lacks ``delta`` in ``Huber``, and by the name
    of its class, which another process does not know
    (``keras/src/saving/keras_saveable.py``, ``keras/src/losses/losses.py`` in Keras 3.12).
    """

    def reducer_override(self, value: Any) -> Any:
        """See :meth:`pickle.Pickler.reducer_override`."""
        if is_loss(value):
            return copyreg.__newobj__, (type(value),), vars(value)  # type: ignore[attr-defined]
        return super().reducer_override(value)


def is_loss(value: Any) -> bool:
    """Whether an object is a loss of Keras; imports no Keras, which takes seconds."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.losses.Loss)


def dumps(value: Any, pickler: type[Pickler] = Pickler) -> bytes:
    """The pickle of an object.

    Raises:
        Exception: whatever the object's ``__reduce__`` raises.
    """
    stream = io.BytesIO()
    pickler(stream).dump(value)
    return stream.getvalue()
