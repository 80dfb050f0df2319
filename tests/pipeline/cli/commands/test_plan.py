"""``stagecraft plan``: what is shown, as text and as JSON, and what is refused."""

import pytest
from chains import A100, chain, make, settings

from stagecraft.trainer_module.planning import collective_costs

GRID = ("--set", "parallel.strategy=grid", "--set", "parallel.stages=3")
GRID += ("--set", "parallel.microbatches=4")
THERE = ("--devices", "3xT4-16GB")


def test_text(stagecraft):
    ran = stagecraft("plan", *GRID, *THERE, "--set", "train.model=resnet20")
    assert ran.code == 0
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("resnet20 under grid, 1 × 3 (replicas × stages); 64 examples a step")
    assert lines[0].endswith(", in 4 microbatches of 16")
    assert "replica 0  T4-16GB:0 → T4-16GB:1 → T4-16GB:2" in lines
    table = [line.split() for line in lines if line.strip()[:2] in ("0 ", "1 ", "2 ")]
    assert sum(int(row[1]) for row in table) == 70
    shares = [int(word.rstrip("%")) for row in table for word in row if word.endswith("%")]
    assert len(shares) == 3 and sum(shares) == pytest.approx(100, abs=1)
    assert "stage 0  F0 F1 F2             B0--- F3 B1---    B2---    B3---" in lines
    assert any(
        line.startswith("bubble        33.3% = (K - 1) / (M + K - 1), K = 3, M = 4")
        for line in lines
    )
    assert any(
        line.startswith("faster        parallel.replicas: 2, parallel.stages: 1") for line in lines
    )


def test_json_says_the_same(stagecraft):
    ran = stagecraft("plan", *GRID, "--devices", "4xA100-40GB", "--json")
    assert ran.code == 0
    assert len(ran.stdout.splitlines()) == 1
    found = ran.last_line
    assert found["bubble"] == pytest.approx(2 / 6)
    assert found["devices"] == [["A100-40GB:0", "A100-40GB:1", "A100-40GB:2"]]
    assert found["times"] == "peak"
    assert len(found["stages"]) == 3 and len(found["cuts"]) == 2
    assert f"step          {found['step_seconds'] * 1e6:.0f} µs" in ran.stderr
    assert f"{found['speedup']:.2f} over one device (at most 3)" in ran.stderr
    better = found["suggestion"]
    assert (better["strategy"], better["replicas"], better["stages"]) == ("grid", 4, 1)
    assert "faster        parallel.replicas: 4, parallel.stages: 1, parallel.microb" in ran.stderr


def test_a_tied_embedding_is_traffic(stagecraft):
    preset = ("--config", "language_model", "--set", "train.model=transformer_2_64_4")
    ran = stagecraft("plan", *preset, *GRID, *THERE, "--json")
    assert ran.code == 0
    (tied,) = ran.last_line["tied"]
    # There and back: the weights [64, 64] of 4 bytes, and their gradient.
    size = 2 * 64 * 64 * 4
    assert (tied["path"], tied["stages"], tied["bytes"]) == ("embedding/embeddings", [0, 2], size)
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("tied weights"))
    assert line.endswith(
        "embedding/embeddings of stages 0 and 2: 32.8 kB between stages in each step"
    )


WORKERS = ("--set", "parallel.strategy=multi_worker_mirrored", "--set", "parallel.workers=4")


def test_four_workers_are_not_four_times_as_fast_for_nothing(stagecraft):
    ran = stagecraft("plan", *WORKERS, "--devices", "1xA100-40GB", "--json")
    assert ran.code == 0
    found = ran.last_line
    bytes_summed = 4 * found["stages"][0]["trainable_parameters"]

    def ring_of_four(network_gbit: float) -> float:
        between = collective_costs.links(None, network_gbit).between()
        return collective_costs.all_reduce_seconds(bytes_summed, 4, between)

    assert found["all_reduce_seconds"] == pytest.approx(ring_of_four(10))
    assert found["network_gbit"] == 10
    assert found["speedup"] < 2
    assert ran.stderr.count("limited by") == 1
    faster = stagecraft(
        "plan", *WORKERS, "--devices", "1xA100-40GB", "--network", "100", "--json"
    ).last_line
    assert faster["all_reduce_seconds"] == pytest.approx(ring_of_four(100))


def test_workers_without_a_cluster(stagecraft):
    ran = stagecraft("plan", *WORKERS)
    assert ran.code == 0, ran.stderr
    assert "speed-up      4.00 over one device (at most 4); without the all-reduce" in ran.stdout


def test_what_would_be_faster_says_what_is_not_counted():
    given = settings(stages=2, microbatches=2)
    (line,) = [each for each in _lines(given) if each.startswith("faster ")]
    assert "parallel.replicas: 4, parallel.stages: 1" in line
    assert line.endswith("; without its all-reduce")
    (line,) = [each for each in _lines(given, accelerator=A100) if each.startswith("faster ")]
    assert line.endswith(" on each")


def _lines(given, **more):
    return str(make(chain(8), given, available=4, **more)).splitlines()


@pytest.mark.slow
def test_one_device_and_measured(stagecraft):
    ran = stagecraft("plan", "--measure")
    assert ran.code == 0
    assert "cnn under one_device, 1 × 1 (replicas × stages); 64 examples a step" in ran.stdout
    assert "measured on" in ran.stdout and "examples/s" in ran.stdout
    assert "speed-up      1.00 over one device (at most 1)" in ran.stdout
    assert "bubble" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*GRID, "--devices", "2xA100-40GB"), "--devices 3xA100-40GB"),
        ((*GRID, "--devices", "3xB7"), "3xB7"),
        ((*GRID, "--devices", "3xT4-16GB", "--measure"), "--measure"),
        ((*GRID, *THERE, "--set", "parallel.memory_mb=1"), "parallel.remat: true"),
        ((*GRID, *THERE, "--set", "parallel.cuts=a,b"), "block1_conv"),
        (("--config", "no.yaml"), "quickstart"),
        ((*GRID, *THERE, "--network", "nan"), "nan"),
        ((*GRID, *THERE, "--network", "inf"), "inf"),
    ],
)
def test_errors(refused, arguments, said):
    assert said in refused("plan", *arguments)


SEARCH = ("--search", "--devices", "2x2xA100-40GB", "--set", "train.model=resnet20")


def test_search(stagecraft):
    ran = stagecraft("plan", *SEARCH)
    assert ran.code == 0, ran.stderr
    lines = ran.stdout.splitlines()
    rows = lines[3 : lines.index("", 3)]
    assert [row.split()[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert len(rows) > 3
    (best,) = (line for line in lines if line.startswith("best "))
    words = best.split()[1:]
    assert words[::2] == ["--set"] * (len(words) // 2)
    again = stagecraft("plan", *words, "--devices", "2xA100-40GB", *SEARCH[3:], "--json")
    assert again.code == 0, again.stderr
    found = stagecraft("plan", *SEARCH, "--json").last_line
    steps = [each["step"] for each in found["candidates"]]
    assert steps == sorted(steps)
    assert again.last_line["step_seconds"] == pytest.approx(steps[0])
    assert found["candidates"][0]["reason"] == ""


def test_auto_plans_the_best_of_a_search(stagecraft):
    auto = ("--set", "parallel.strategy=auto", "--devices", "4xA100-40GB", *SEARCH[3:], "--json")
    found = stagecraft("plan", "--search", *auto).last_line
    ran = stagecraft("plan", *auto)
    assert ran.code == 0, ran.stderr
    assert ran.last_line["step_seconds"] == pytest.approx(found["candidates"][0]["step"])
    assert ran.last_line["strategy"] == found["candidates"][0]["settings"]["strategy"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--devices", "0x8xH100-80GB"), "0x8xH100-80GB"),
        (("--devices", "8xB7"), "8xB7"),
        (
            ("--devices", "2", "--set", "parallel.stages=3", "--set", "parallel.strategy=grid"),
            "parallel.stages: 2",
        ),
        (("--devices", "2", "--goodput", "64"), "--goodput"),
        (("--set", "parallel.strategy=parameter_server"), "parallel.strategy: auto"),
        (
            (
                "--devices",
                "2xT4-16GB",
                "--set",
                "parallel.memory_mb=1",
                "--set",
                "parallel.strategy=auto",
            ),
            "mixed_bfloat16",
        ),
    ],
)
def test_errors_of_a_search(refused, arguments, said):
    assert said in refused("plan", "--search", *arguments)


def test_a_model_in_the_present_folder(stagecraft, tmp_path):
    lines = (
        "from keras import Sequential, layers",
        "def build(input_shape, num_classes):",
        "    middle = [layers.Flatten(), layers.Dense(4), layers.Dense(4)]",
        "    parts = [layers.Input(input_shape), *middle, layers.Dense(num_classes)]",
        "    return Sequential(parts, name='beside')",
    )
    (tmp_path / "model_beside.py").write_text("\n".join(lines))
    ran = stagecraft("plan", *GRID, *THERE, "--set", "train.model=model_beside:build")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("beside under grid, 1 × 3")


def test_a_month_on_many_hosts(stagecraft):
    ran = stagecraft("plan", *GRID, *THERE, "--goodput", "1,64,4096", "--faults", "mtbf=3000")
    assert ran.code == 0
    lines = ran.stdout.splitlines()
    start = lines.index("A month of training, simulated; each host as planned above:")
    rows = [line.split() for line in lines[start + 2 : start + 5]]
    assert [row[0] for row in rows] == ["1", "64", "4,096"]
    assert [row[1] for row in rows] == ["0.2", "15.4", "983.0"]
    assert "3,000 h" in lines[start + 5]


def test_the_same_month_as_json(stagecraft):
    ran = stagecraft("plan", *GRID, *THERE, "--goodput", "64", "--json")
    assert ran.code == 0
    [month] = ran.last_line["goodput"]
    assert month["hosts"] == 64 and 0.9 < month["useful"] < 1


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--goodput", "64"], "--goodput"),
        (["--goodput", "0", *THERE], "--goodput"),
        (["--goodput", "4-8", *THERE], "--goodput"),
        (["--faults", "mtbf=3", *THERE], "--faults"),
        (["--goodput", "8", "--faults", "mtbv=3", *THERE], "--faults"),
    ],
)
def test_a_month_that_cannot_be_simulated(stagecraft, words, setting):
    ran = stagecraft("plan", *GRID, *words)
    assert ran.code == 1
    assert setting in ran.stderr
