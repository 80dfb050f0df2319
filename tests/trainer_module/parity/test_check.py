import pathlib

from model_arguments import classes

from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.parity.check import Check
from stagecraft.trainer_module.parity.report import ParityReport, Row
from stagecraft.trainer_module.settings import TrainingSettings


def _rows(folder: pathlib.Path, names: str) -> tuple[list[Row], list[str]]:
    started: list[str] = []

    def on_phase(topology: str, phase: str) -> None:
        if phase == "start":
            started.append(topology)

    check = Check(folder, classes(), folder, steps=4, timeout_seconds=60.0, on_phase=on_phase)
    chosen = cases.select(names, TrainingSettings(), steps=4, batch_size=8)
    return list(check.rows(chosen)), started


def test_a_reference_serves_all_that_it_fits(fake, tmp_path):
    rows, started = _rows(tmp_path, "mirrored-2,stages-2,microbatches-4,clip")
    assert all(row.equal for row in rows)
    assert started == [
        "one device for mirrored-2",
        "mirrored-2",
        "stages-2",
        "microbatches-4",
        "one device for clip",  # which clips
        "clip",
    ]


def test_a_difference_names_the_variable(fake, tmp_path):
    fake(mirrored="differs")
    (row,), _ = _rows(tmp_path, "mirrored-2")
    assert row.verdict == "differs" and "kernel" in row.reason
    assert "3.89e-06" in row.reason  # 4 sqrt(2/3) 2**-24 sqrt(100) 2


def test_drift_is_a_difference(fake, tmp_path):
    fake(mirrored="drifts")
    (row,), _ = _rows(tmp_path, "mirrored-2")
    assert "model/kernel of replica 1" in row.reason


def test_a_topology_that_dies_is_a_failed_row_and_the_next_ones_run(fake, tmp_path):
    fake(mirrored="die")
    (died, lived), _ = _rows(tmp_path, "mirrored-2,stages-2")
    assert (died.verdict, lived.verdict) == ("failed", "equal")
    assert "exit code 4" in died.reason


def test_a_reference_that_fails_fails_what_it_is_for(fake, tmp_path):
    fake(one_device="error")
    (row,), _ = _rows(tmp_path, "mirrored-2")
    assert row.reason.startswith("one device: ")


def test_16_bits_are_compared_in_the_same_parts(fake, tmp_path):
    (row,), _ = _rows(tmp_path, "bfloat16")
    assert "2 accumulation" in row.reference
    assert [finding.criterion for finding in row.findings] == ["gradients"]


def test_tables_have_a_line_a_topology(fake, tmp_path):
    fake(mirrored="differs", grid="die")
    rows, _ = _rows(tmp_path, "accumulate-4,mirrored-2,stages-2")
    report = ParityReport(tuple(rows))
    assert not report and ParityReport(tuple(rows[:1]))
    lines = report.table().splitlines()
    assert [line.split()[-1] for line in lines] == ["verdict", "equal", "differs", "failed"]
    text = report.markdown()
    assert "| mirrored-2 | one device |" in text
    assert f"\n* mirrored-2: {rows[1].reason}" in text
    assert [row.as_json()["equal"] for row in rows] == [True, False, False]
    assert "error" not in rows[0].as_json()


def test_layers_that_stay_float32_are_noted(fake, tmp_path):
    fake(one_device="casts")
    rows, _ = _rows(tmp_path, "mirrored-2,stages-2")
    assert all(row.equal for row in rows)
    assert rows[0].float32 == tuple(f"attention{number}" for number in range(5))
    assert f"\n* mirrored-2: {rows[0].note}" in ParityReport(tuple(rows)).markdown()
    assert rows[1].as_json()["float32_in_float64"] == list(rows[1].float32)
