"""Results of the models of earlier spans: the newest of each span, of this pipeline alone."""

import dataclasses
import pathlib
from typing import Any

import pytest
import tensorflow as tf
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.types.standard_artifacts import Examples, ModelEvaluation

from stagecraft.components.example_gen import spans
from stagecraft.components.report import earlier_models
from stagecraft.components.report.pages import page
from stagecraft.components.report.report_data import SpanResult

Event = metadata_store_pb2.Event


class Store:
    """A store with evaluations; the numbers of a span may be evaluated several times."""

    def __init__(self, folder):
        config = metadata_store_pb2.ConnectionConfig()
        config.fake_database.SetInParent()
        self.store = metadata_store.MetadataStore(config)
        self._folder = folder
        put = self.store.put_artifact_type
        self._types = {
            name: put(metadata_store_pb2.ArtifactType(name=name))
            for name in ("Examples", "ModelEvaluation")
        }
        kind = metadata_store_pb2.ExecutionType(name="Evaluator")
        self._execution = self.store.put_execution_type(kind)
        pipeline = metadata_store_pb2.ContextType(name="pipeline")
        self._pipeline = self.store.put_context_type(pipeline)

    def evaluate(self, span: int | None, pipeline: str = "flats", source: str = "data") -> int:
        """The ID of an evaluation of a model on a span."""
        examples = metadata_store_pb2.Artifact(type_id=self._types["Examples"])
        if span is not None:
            examples.custom_properties[spans.SPAN].int_value = span
            examples.custom_properties[spans.PATTERNS].string_value = source
            examples.custom_properties[spans.NAME].string_value = f"day {span}"
        [examples.id] = self.store.put_artifacts([examples])
        number = len(list(self._folder.iterdir()))
        (self._folder / str(number)).mkdir()
        made = metadata_store_pb2.Artifact(
            type_id=self._types["ModelEvaluation"], uri=str(self._folder / str(number))
        )
        execution = metadata_store_pb2.Execution(type_id=self._execution)
        context = metadata_store_pb2.Context(type_id=self._pipeline, name=pipeline)
        events = [(examples, Event(type=Event.INPUT)), (made, Event(type=Event.OUTPUT))]
        _, (_, made_id), _ = self.store.put_execution(
            execution, events, [context], reuse_context_if_already_exist=True
        )
        return int(made_id)


@dataclasses.dataclass
class Found:
    metrics: dict[str, float]


def read_evaluation(uri):
    """The number of an evaluation as its metric, unless it is damaged."""
    if (pathlib.Path(uri) / "damaged").exists():
        raise tf.errors.DataLossError(None, None, uri)
    return Found({"mae": float(uri.rsplit("/")[-1])})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(earlier_models, "read_evaluation", read_evaluation)
    return Store(tmp_path)


def test_the_newest_of_each_span_in_order_of_spans(store):
    for span in (1, 3, 2, None):
        store.evaluate(span)
    store.evaluate(1, "others")
    last = store.evaluate(3)
    assert earlier_models.of_store(store.store, last) == [
        SpanResult("day 1", {"mae": 0.0}),
        SpanResult("day 2", {"mae": 2.0}),
        SpanResult("day 3", {"mae": 5.0}),
    ]


def test_spans_of_another_source_are_left_out(store):
    store.evaluate(1)
    other = store.evaluate(1, source="others")
    last = store.evaluate(2)
    assert [each.metrics["mae"] for each in earlier_models.of_store(store.store, last)] == [0, 2]
    assert [each.metrics["mae"] for each in earlier_models.of_store(store.store, other)] == [1]


def test_damaged_evaluations_are_left_out(store, tmp_path, caplog):
    for span in (1, 2, 2, 3):
        last = store.evaluate(span)
    for number in (0, 2):
        (tmp_path / f"{number}" / "damaged").touch()
    found = earlier_models.of_store(store.store, last)
    assert [each.metrics["mae"] for each in found] == [1, 3]
    [warning] = caplog.records
    assert warning.args == (2,)


def test_no_more_spans_than_a_curve_shows(store, monkeypatch):
    monkeypatch.setattr(earlier_models, "MOST", 2)
    for span in (1, 2, 3):
        last = store.evaluate(span)
    assert [each.span for each in earlier_models.of_store(store.store, last)] == ["day 2", "day 3"]


def examples(span: int | None, source: str = "data") -> Examples:
    artifact = Examples()
    artifact.set_int_custom_property(spans.SPAN, span or 0)
    if span is not None:
        artifact.set_int_custom_property(spans.FILES, 1)
        artifact.set_string_custom_property(spans.NAME, f"day {span}")
        artifact.set_string_custom_property(spans.PATTERNS, source)
    return artifact


def test_without_a_store_there_is_nothing():
    assert earlier_models.read("", ModelEvaluation(), examples(1), {"mae": 1.0}) == []


def test_without_a_store_results_are_in_a_folder_that_runs_share(tmp_path, monkeypatch):
    monkeypatch.setattr(earlier_models, "MOST", 3)

    def read(metrics: float, *given: Any) -> list[SpanResult]:
        with earlier_models.shared(str(tmp_path / "span_results")):
            return earlier_models.read("", ModelEvaluation(), examples(*given), {"mae": metrics})

    assert read(7.0, None) == []
    assert read(9.0, 1, "others") == [SpanResult("day 1", {"mae": 9.0})]
    for number, span in enumerate((10, 2, 9, 2, 11)):
        found = read(float(number), span)
    assert found == [
        SpanResult("day 9", {"mae": 2.0}),
        SpanResult("day 10", {"mae": 0.0}),
        SpanResult("day 11", {"mae": 4.0}),
    ]
    assert len([*tmp_path.glob("span_results/*")]) == 5
    [damaged] = tmp_path.glob("span_results/0000000010-*")
    damaged.write_text("{")
    assert [each.span for each in read(4.0, 11)] == ["day 9", "day 11"]


def test_the_page_has_a_curve_and_a_table(one_device):
    models = [SpanResult(f"day {day}", {"accuracy": 0.5 + day / 10}) for day in (1, 2)]
    models.append(SpanResult("day 3", {}))
    text = page.render(dataclasses.replace(one_device, earlier_models=models))
    assert '<section id="earlier_models"' in text
    assert "day 1" in text and "60.0" in text
    alone = page.render(dataclasses.replace(one_device, earlier_models=models[:1]))
    assert '<section id="earlier_models"' not in alone
