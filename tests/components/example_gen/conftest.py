"""Tiny data sets in the official layouts."""

import dataclasses
import io
import pathlib
import pickle
import tarfile

import numpy as np
import pytest


@dataclasses.dataclass
class Tiny:
    """A few random pictures, and the ways in which they may be packed."""

    folder: pathlib.Path
    train: int = 30
    test: int = 10
    classes: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        n = self.train + self.test
        self.planes = random.integers(0, 256, (n, 3072), dtype=np.uint8)
        self.labels = random.integers(0, self.classes, n, dtype=np.uint8)
        self.coarse = (self.labels // 5).astype(np.uint8)

    def batches(self) -> dict[str, slice]:
        """Base names of CIFAR-10's batches: two of unlike size for training, and the test's."""
        cut = self.train // 3
        return {
            "data_batch_1": slice(0, cut),
            "data_batch_2": slice(cut, self.train),
            "test_batch": slice(self.train, None),
        }

    def parts(self) -> dict[str, slice]:
        """Base names of CIFAR-100's files."""
        return {"train": slice(0, self.train), "test": slice(self.train, None)}

    def binary(self) -> dict[str, bytes]:
        """Contents of cifar-10-binary's files."""
        records = np.concatenate([self.labels[:, None], self.planes], axis=1)
        files = {f"{name}.bin": records[part].tobytes() for name, part in self.batches().items()}
        return {"batches.meta.txt": b"airplane\n", **files}

    def python(self, protocol: int = 2) -> dict[str, bytes]:
        """Contents of cifar-10-python's files."""
        files = {
            name: pickle.dumps(
                {
                    b"batch_label": name.encode(),
                    b"labels": self.labels[part].tolist(),
                    b"data": self.planes[part],
                    b"filenames": [b"a.png"] * len(self.labels[part]),
                },
                protocol,
            )
            for name, part in self.batches().items()
        }
        return {"batches.meta": pickle.dumps({}, protocol), **files}

    def binary100(self) -> dict[str, bytes]:
        """Contents of cifar-100-binary's files."""
        records = np.concatenate([self.coarse[:, None], self.labels[:, None], self.planes], axis=1)
        return {f"{name}.bin": records[part].tobytes() for name, part in self.parts().items()}

    def python100(self) -> dict[str, bytes]:
        """Contents of cifar-100-python's files."""
        return {
            name: pickle.dumps(
                {
                    "fine_labels": self.labels[part].tolist(),
                    "coarse_labels": self.coarse[part].tolist(),
                    "data": self.planes[part],
                }
            )
            for name, part in self.parts().items()
        }

    def pack(self, files: dict[str, bytes], name: str = "data.tar.gz") -> str:
        """Writes a .tar.gz, its members in the reverse of the data set's order."""
        path = self.folder / name
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for member, data in reversed(files.items()):
                info = tarfile.TarInfo(f"cifar/{member}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return str(path)

    def unpack(self, files: dict[str, bytes], name: str = "data") -> str:
        """Writes a folder."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for member, data in files.items():
            (folder / member).write_bytes(data)
        return str(folder)


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> Tiny:
    """CIFAR-10's kind: 30 pictures to train on, 10 to test on."""
    return Tiny(tmp_path)


@pytest.fixture
def tiny100(tmp_path: pathlib.Path) -> Tiny:
    """CIFAR-100's kind."""
    return Tiny(tmp_path, classes=100)
