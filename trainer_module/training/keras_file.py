"""The model as a ``.keras`` file, for Keras to load without this project's run."""

from __future__ import annotations

import json
import pathlib
import tempfile
import zipfile

import keras

from stagecraft.common.errors import SettingError

_UNDATED = (1980, 1, 1, 0, 0, 0)
_METADATA = "metadata.json"


def check(model: keras.Model) -> None:
    """Checks that Keras can load the model back.

    Raises:
        SettingError: it cannot.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        try:
            write(model, path)
            keras.saving.load_model(path, compile=False)
        except OSError:  # of the disk
            raise
        except Exception as error:  # whatever a layer's get_config or from_config raises
            reason = " ".join(str(error).split()).partition(". ")[0] or type(error).__name__
            raise SettingError(
                "train.export_keras",
                True,
                f"is refused, because Keras cannot load the model back: {reason[:300].rstrip('.')}",
                "@keras.saving.register_keras_serializable() and get_config for each of your "
                "layers and models, or train.export_keras: false",
            ) from error


def write(model: keras.Model, path: pathlib.Path) -> None:
    """Writes a file that has the same bytes for the same model: without dates."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        dated = pathlib.Path(folder, "model.keras")
        model.save(dated)
        with zipfile.ZipFile(dated) as given, zipfile.ZipFile(path, "w") as file:
            for name in sorted(given.namelist()):
                content = given.read(name)
                if name == _METADATA:
                    metadata = json.loads(content)
                    metadata.pop("date_saved", None)
                    content = json.dumps(metadata).encode()
                file.writestr(zipfile.ZipInfo(name, _UNDATED), content)
