"""Is anything left behind when trainings are killed, fifty times in a row?

    python benchmarks/soak.py [--cycles 50] [--seed 0]

Each cycle starts a training of two workers in step, which goes on from the checkpoints of the one
before, waits until there is a newer checkpoint, and ends it in one of three ways: SIGKILL of the
process that started the workers, SIGKILL of a worker (and an interruption after the restart), or an
interruption. Looked at after each: processes of the training, sockets that listen, files in the
temporary folder, bytes of the checkpoints' folder, and this process's memory and open files. Exit
code 1 if something is left or grows.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable

import psutil

from stagecraft.pipeline.drill.drill import IN_STEP, Drill
from stagecraft.pipeline.drill.training import Training
from stagecraft.pipeline.settings import load

END_SECONDS = 10.0
START_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    settings = load("quickstart", ("data.sample_train=600", "data.sample_test=100"))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = pathlib.Path(name)
        with (folder / "log").open("ab", buffering=0) as log:
            drill = Drill(settings, folder, log)
            print("cycle  how       step  left  listening  temporary  checkpoints  memory  files")
            seen = []
            for cycle in range(1, args.cycles + 1):
                training = drill.training(
                    "soak",
                    IN_STEP,
                    train_steps=10**6,
                    train_checkpoint_every=20,
                    train_eval_every=10**6,
                )
                how = chance.choice(["launcher", "worker", "interrupt"])
                row = one(training, how, chance)
                seen.append(row)
                print(f"{cycle:5}  {how:9} {' '.join(f'{value:>9,}' for value in row)}", flush=True)
    problems = judge(seen)
    print("\n".join(problems) or "nothing is left behind, and nothing grows")
    sys.exit(1 if problems else 0)


def one(training: Training, how: str, chance: random.Random) -> tuple[int, ...]:
    """Step, processes left, sockets that listen, temporary files, MB, MB, open files."""
    store = training.checkpoints()

    def newest() -> int:
        return max(store.steps(), default=0)

    before = newest()
    launcher = training.start()
    wait(lambda: newest() > before)
    time.sleep(chance.uniform(0, 1))  # anywhere between two checkpoints
    of_training = psutil.Process(launcher.pid).children(recursive=True)
    if how == "launcher":
        launcher.kill()
    elif how == "worker":
        chance.choice(of_training).kill()
        step = newest()
        wait(lambda: newest() > step + 20)
        of_training += psutil.Process(launcher.pid).children(recursive=True)
    if how != "launcher":
        launcher.send_signal(signal.SIGINT)
    launcher.wait()
    _, left = psutil.wait_procs(of_training, timeout=END_SECONDS)
    for process in left:
        process.kill()
    me = psutil.Process()
    root = pathlib.Path(training.fn_args.working_dir)
    listening = [each for each in psutil.net_connections("tcp") if each.status == "LISTEN"]
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    temporary = list(pathlib.Path(tempfile.gettempdir()).glob("stagecraft-*"))
    return (
        newest(),
        len(left),
        len(listening),
        len(temporary),
        size // 10**6,
        me.memory_info().rss // 10**6,
        me.num_fds(),
    )


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the training does not go on; see the log")
        time.sleep(0.05)


def judge(rows: list[tuple[int, ...]]) -> list[str]:
    """What is left, or grows from the fifth cycle on."""
    problems = []
    if any(row[1] for row in rows):
        problems.append("processes were left")
    names = ("sockets that listen", "temporary files", "MB of checkpoints", "MB of memory", "files")
    for column, (name, slack) in enumerate(zip(names, (0, 0, 1, 10, 0), strict=True), start=2):
        early, late = rows[min(4, len(rows) - 1)][column], rows[-1][column]
        if late > early + slack:
            problems.append(f"{name}: from {early} to {late}")
    return problems


if __name__ == "__main__":
    main()
