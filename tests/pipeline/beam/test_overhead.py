"""Beam's pipelines in one process are faster: in the block only, with the same results."""

import argparse
import base64
import pathlib
from types import SimpleNamespace

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.internal import pickler
from apache_beam.io import tfrecordio
from tfx.proto.orchestration import placeholder_pb2

from stagecraft.pipeline.beam import beam_args, in_process, reduced_overhead
from stagecraft.pipeline.local.launcher import ReportingLauncher
from stagecraft.pipeline.settings import BeamSettings

BZ2 = b"BZh"


def twice(value: int) -> int:
    return 2 * value


def compression() -> bytes:
    """The first bytes of a pickle."""
    return base64.b64decode(pickler.dumps(twice))[: len(BZ2)]


@pytest.mark.parametrize(
    ("arguments", "is_reduced"),
    [
        ([], True),
        (beam_args(BeamSettings()), True),
        (["--direct_running_mode=in_memory", "--direct_num_workers=1"], True),
        (["--runner=DirectRunner", "--direct_running_mode", "multi_threading"], True),
        (["--direct_running_mode=multi_processing"], False),
        (["--runner=FlinkRunner", "--flink_master=[local]"], False),
        (["--runner=DataflowRunner"], False),
        (["--runner=a.b.OwnRunner"], False),
    ],
)
def test_workers_in_other_processes_get_pickles_that_they_know(arguments, is_reduced):
    with reduced_overhead(arguments):
        assert (compression() != BZ2) == is_reduced
    assert compression() == BZ2


def test_arguments_that_only_the_executor_knows_change_nothing():
    known, unknown = (
        placeholder_pb2.PlaceholderExpression(),
        placeholder_pb2.PlaceholderExpression(),
    )
    known.value.string_value = "--direct_num_workers=1"
    unknown.operator.concat_op.expressions.add().value.string_value = "--runner="
    for placeholders, is_reduced in (([known], True), ([known, unknown], False), ((), True)):
        launcher = SimpleNamespace(_beam_args=placeholders)
        with ReportingLauncher._reduced_overhead(launcher):
            assert (compression() != BZ2) == is_reduced


def test_an_error_ends_the_block_as_well():
    heading, checksum = argparse._, tfrecordio._default_crc32c_fn.fn
    with pytest.raises(ZeroDivisionError), reduced_overhead([]):
        raise ZeroDivisionError
    assert argparse._ is heading and tfrecordio._default_crc32c_fn.fn is checksum
    assert compression() == BZ2


def test_pickles_from_before_the_block_are_read():
    before = pickler.dumps(twice)
    with reduced_overhead([]):
        assert pickler.loads(before)(21) == 42
        assert pickler.loads(pickler.dumps(twice))(21) == 42


class OwnArguments(beam.DoFn):
    def __init__(self, offset: int):
        self._offset = offset

    def process(self, element: int, window=beam.DoFn.WindowParam, factor: int = 3):
        assert window is not None
        yield self._offset + factor * element


def test_arguments_of_methods_are_the_same_and_nobody_shares_them():
    from apache_beam.transforms import core

    functions = [OwnArguments(1).process, OwnArguments(2).process, OwnArguments.process, twice]
    before = [core.get_function_args_defaults(each) for each in functions]
    with reduced_overhead([]):
        for _ in range(2):
            found = [core.get_function_args_defaults(each) for each in functions]
            assert found == before
            for names, defaults in found:
                names.append("other")
                defaults.clear()


def test_checksums_are_the_same():
    data = [b"", b"one", bytes(range(256)) * 12]
    before = [tfrecordio._TFRecordUtil._masked_crc32c(each) for each in data]
    with reduced_overhead([]):
        assert [tfrecordio._TFRecordUtil._masked_crc32c(each) for each in data] == before


def test_a_pipeline_reads_computes_and_notices_damage(tmp_path: pathlib.Path):
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(9):
            writer.write(str(number).encode())
    out = tmp_path / "out"

    def run() -> None:
        with in_process(), reduced_overhead([]), beam.Pipeline() as pipeline:
            _ = (
                pipeline
                | beam.io.ReadFromTFRecord(str(path))
                | beam.Map(lambda record: twice(int(record)))
                | beam.ParDo(OwnArguments(1), factor=2)
                | "again" >> beam.ParDo(OwnArguments(0))
                | beam.CombineGlobally(sum)
                | beam.io.WriteToText(str(out), shard_name_template="")
            )

    run()
    assert out.read_text().split() == ["459"]
    damaged = bytearray(path.read_bytes())
    damaged[12] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="TFRecord"):
        run()
