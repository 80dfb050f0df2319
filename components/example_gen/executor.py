"""Writes the shards of the splits, each by one Beam element."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import posixpath
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import tensorflow as tf
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import driver, source, splits
from stagecraft.components.example_gen.archives.progress import LoggedProgress
from stagecraft.components.example_gen.content import (
    SKIPPED,
    Content,
    Refused,
    Source,
)
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import filesystem

REFUSE, SKIP = "refuse", "skip"
"""Values of the property ``corrupt_images``."""

_REFUSED = "refused-"  # begins the names of files in the scratch folder
_MOST_SHOWN = 10

_log = logging.getLogger(__name__)


class Plan(NamedTuple):
    """Input, splits and output of the shards."""

    content: Content
    val_fraction: float
    shards: int  # files per split
    folders: Mapping[str, str]  # split -> output folder
    scratch: str  # a folder on the same file system, for unfinished files

    def ids(self) -> dict[str, splits.Ids]:
        """The ids of every split."""
        return self.content.split_ids(self.val_fraction)

    def elements(self) -> list[tuple[str, int]]:
        """Split and number of every shard."""
        return [(split, shard) for split in splits.SPLITS for shard in range(self.shards)]


def check_corrupt_images(value: str) -> None:
    """Refuses an unknown value of the property ``corrupt_images``."""
    if value not in (REFUSE, SKIP):
        raise SettingError("corrupt_images", value, "is unknown", f"{REFUSE} or {SKIP}")


class CorruptFilesError(UserError):
    """Files of the source from which no examples can be made."""

    def __init__(self, refused: Sequence[Refused]):
        self.refused = tuple(refused)
        shown = "; ".join(f"{each.file} {each.problem}" for each in refused[:_MOST_SHOWN])
        more = len(refused) - _MOST_SHOWN
        count = "1 file" if len(refused) == 1 else f"{len(refused):,} files"
        super().__init__(
            f"No examples can be made of {count}: {shown}"
            + (f"; and of {more:,} more, which the log names. " if more > 0 else ". ")
            + "Mend or remove them, or set data.corrupt_images: skip to leave them out.",
            setting="data.corrupt_images",
            value=REFUSE,
            suggestion=f"data.corrupt_images: {SKIP}",
            file=refused[0].file,
            record=", ".join(each.file for each in refused),
        )


class WriteShard(beam.DoFn):
    """Writes the shard of an element ``(split, number)`` as an uncompressed TFRecord.

    If the source has files of which no example can be made, they get a file in the scratch folder.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def setup(self) -> None:
        """Computes the splits' ids, which is faster than sending them."""
        self._ids = self._plan.ids()

    def process(self, element: tuple[str, int]) -> None:
        """Writes one shard."""
        split, shard = element
        plan = self._plan
        name = f"data_tfrecord-{shard:05d}-of-{plan.shards:05d}"
        # A runner may run a shard several times, even at once. Each attempt writes its own file.
        # All have the same bytes, so any of them may be the last.
        attempt = f"{split}-{name}-{uuid.uuid4().hex}"
        target = posixpath.join(plan.folders[split], name)
        if filesystem.served(target):  # TensorFlow cannot write there; an upload is atomic
            with tempfile.TemporaryDirectory(prefix="stagecraft-shard-") as folder:
                self._write(split, shard, path := posixpath.join(folder, attempt))
                filesystem.upload(path, target)
        else:
            self._write(split, shard, path := posixpath.join(plan.scratch, attempt))
            fileio.rename(path, target, overwrite=True)

    def _write(self, split: str, shard: int, path: str) -> None:
        ids = splits.shard_ids(self._ids[split], shard, self._plan.shards)
        refused = []
        with tf.io.TFRecordWriter(path) as writer:
            for example in self._plan.content.examples(ids):
                if isinstance(example, Refused):
                    refused.append(example)
                else:
                    writer.write(example)
        if refused:
            name = posixpath.join(self._plan.scratch, f"{_REFUSED}{split}-{shard:05d}")
            with fileio.open(name, "w") as file:
                file.write(json.dumps(refused))


class Executor(base_beam_executor.BaseBeamExecutor):
    """Reads the source, then writes a shard per Beam element."""

    resolve: Callable[[Mapping[str, Any]], Source] = staticmethod(source.resolve)
    """Finds the source in execution properties."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the component."""
        self._log_startup(input_dict, output_dict, exec_properties)
        # The driver replaced these properties by a fingerprint. TFX records the original values.
        node = self._context.pipeline_node if self._context else None
        exec_properties.update(driver.original_properties(node))
        [examples] = output_dict["examples"]
        examples.split_names = artifact_utils.encode_split_names(list(splits.SPLITS))
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
        folders = {
            split: artifact_utils.get_split_uri([examples], split) for split in splits.SPLITS
        }
        scratch = posixpath.join(examples.uri, ".scratch")
        try:
            with _unwritable_is_a_user_error(examples.uri):
                for folder in (*folders.values(), scratch):
                    _remove(folder)  # left by a killed attempt of this execution
                resolved = self.resolve(driver.located(exec_properties)[0])
                plan = Plan(
                    _read(resolved, exec_properties, scratch),
                    val_fraction=float(exec_properties["val_fraction"]),
                    shards=int(exec_properties["shards"]),
                    folders=folders,
                    scratch=scratch,
                )
                counts = {split: len(ids) for split, ids in plan.ids().items()}
                refused = self._write(plan, sum(counts.values()))
                for split, of_split in refused.items():
                    counts[split] -= len(of_split)
                _check(refused, counts, str(exec_properties.get("corrupt_images", REFUSE)))
        except BaseException:  # after Ctrl-C, TFX keeps outputs
            for folder in folders.values():
                _remove(folder)
            raise
        finally:
            _remove(scratch)
        for split, count in counts.items():
            examples.set_int_custom_property(f"count_{split}", count)
        if skipped := sum(map(len, refused.values())):
            examples.set_int_custom_property(SKIPPED, skipped)
        examples.set_string_custom_property("source", posixpath.basename(resolved.path.rstrip("/")))
        examples.set_string_custom_property(
            driver.FINGERPRINT, str(exec_properties[driver.FINGERPRINT])
        )
        manifest.add(examples.mlmd_artifact, examples.type_name)

    def _write(self, plan: Plan, total: int) -> dict[str, list[Refused]]:
        """Returns the files of which there are no examples, by split."""
        for folder in (*plan.folders.values(), plan.scratch):
            fileio.makedirs(folder)
        progress = LoggedProgress("write", "examples")
        progress(0, total)
        with self._make_beam_pipeline() as pipeline:
            (
                pipeline
                | "Shards" >> beam.Create(plan.elements())
                | "Spread" >> beam.Reshuffle()  # otherwise, a runner may keep all on one worker
                | "WriteShard" >> beam.ParDo(WriteShard(plan))
            )
        progress(total, total)
        refused: dict[str, list[Refused]] = {split: [] for split in splits.SPLITS}
        for split in splits.SPLITS:
            for path in fileio.glob(posixpath.join(plan.scratch, f"{_REFUSED}{split}-*")):
                with fileio.open(path) as file:
                    refused[split] += [Refused(*each) for each in json.loads(file.read())]
        return refused


def _check(refused: Mapping[str, list[Refused]], counts: Mapping[str, int], corrupt: str) -> None:
    """Says which files have no examples.

    Raises:
        CorruptFilesError: there are some, and they are not skipped, or a split has no others.
    """
    every = sorted(each for of_split in refused.values() for each in of_split)
    for each in every:
        _log.warning("%s %s", each.file, each.problem)
    if every and (corrupt != SKIP or not all(counts.values())):
        raise CorruptFilesError(every)
    if every:
        _log.warning("Skipped %d files of which no examples can be made", len(every))


def _read(resolved: Source, exec_properties: dict[str, Any], folder: str) -> Content:
    content = resolved.content(folder, LoggedProgress("read", "bytes"))
    fingerprint = resolved.fingerprint()
    if exec_properties.setdefault(driver.FINGERPRINT, fingerprint) != fingerprint:
        raise UserError(
            f"{resolved.path}: changed while it was read. Run again when no program writes to it.",
            file=resolved.path,
        )
    return content


@contextlib.contextmanager
def _unwritable_is_a_user_error(folder: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Beam passes on the text of a worker's exception, not the exception.
        for cause in map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)):
            if cause in str(error):
                raise UserError(
                    f"{folder}: cannot be written: {cause}. The output needs about twice the "
                    "size of the data set. Free space, or choose another output folder.",
                    file=folder,
                ) from error
        raise


def _remove(folder: str) -> None:
    if fileio.exists(folder):
        fileio.rmtree(folder)
