"""Model card, summary and KFP's metrics: the same data as the page's."""

import json
import re

from stagecraft.components.report import artifacts
from stagecraft.components.report.pages import model_card, page


def test_the_card(one_device):
    card = json.loads(json.dumps(model_card.as_json(one_device)))
    assert card["model_details"]["version"]["name"] == "17"
    assert card["model_parameters"]["model_architecture"] == "cnn, 123,456 weights"
    assert card["model_parameters"]["data"][0]["sha256"] == "ab" * 32
    metrics = card["quantitative_analysis"]["performance_metrics"]
    [accuracy] = [each for each in metrics if each["type"] == "accuracy"]
    # Wilson's interval of 23 out of 30.
    assert accuracy["confidence_interval"] == {"lower_bound": "0.5907", "upper_bound": "0.8821"}
    assert {"type": "recall", "value": "0.6000", "slice": one_device.class_names[2]} in metrics
    limits = [each["description"] for each in card["considerations"]["limitations"]]
    assert any("(60.0%)" in sentence for sentence in limits)
    assert card["made_with"]["code fingerprint"] == "c0de"


def test_a_card_without_an_evaluation(failed):
    card = model_card.as_json(failed)
    [limit] = card["considerations"]["limitations"]
    assert list(limit) == ["description"]
    assert limit["description"] in page.card(failed, card)


def rows(text: str) -> list[list[str]]:
    """Cells of all table rows; a bar that is escaped is text."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]


def test_names_stay_in_their_cells(one_device, grid):
    for text in (
        page.summary(one_device),
        page.summary(grid),
        page.card(one_device, model_card.as_json(one_device)),
    ):
        assert {len(row) for row in rows(text)} <= {2, 3, 5}
        assert "\\<script\\>alert(1)\\</script\\>\\|" in text
        assert not re.search(r"(?<!\\)<script", text)


def test_the_summary(grid):
    text = page.summary(grid)
    assert text.startswith("# quickstart\n\nAccuracy 76.7% on 30 images")
    assert "2 × 3 grid" in text
    assert "idle for 40.0%" in text


def test_what_kubeflow_shows(grid):
    figures = artifacts.metrics(grid.quality, grid.training)
    assert figures["accuracy"] == grid.quality.metrics["accuracy"]
    assert round(figures["last_blessed_accuracy"], 6) == 0.7
    assert figures["bubble_measured"] == 0.4
    matrix = artifacts.confusion_matrix(grid.quality)
    assert len(matrix["annotationSpecs"]) == len(matrix["rows"]) == 3
    assert matrix["rows"][2] == {"row": [4, 0, 6]}
