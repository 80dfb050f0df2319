"""Kills fifty training runs in a row, and checks that nothing is left.

    python benchmarks/robustness/soak.py [--cycles 50] [--seed 0]

Each cycle starts a synchronous training run of two workers, which resumes from the checkpoints of
the previous one. The cycle waits for a newer checkpoint. It then ends the training in one of three
ways:

    SIGKILL of the process that started the workers
    SIGKILL of a worker, and an interrupt after the restart
    an interrupt

After each cycle, the benchmark counts the remaining processes of the training, the sockets that
they listen on, and the files in their temporary folder. It also measures MB of the checkpoint
folder, and the memory and open files of this process. The exit code is 1 if something is left, or
if a number is larger in the last third of the cycles than in the middle third.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import psutil
from faults.trainings import SYNCHRONOUS, Drill, Training

from common import figures, options
from stagecraft.pipeline.settings import load

END_SECONDS = 10.0
START_SECONDS = 120.0


def main() -> None:
    parser = options(__doc__, cycles=50, seed=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores SIGINT
    settings = load("quickstart", ("data.sample_train=600", "data.sample_test=100"))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = pathlib.Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        with (folder / "log").open("ab", buffering=0) as log:
            drill = Drill(settings, folder, log)
            print("cycle  how       step  left  listening  temporary  checkpoints  memory  files")
            seen = []
            for cycle in range(1, args.cycles + 1):
                training = drill.training(
                    "soak",
                    SYNCHRONOUS,
                    train_steps=10**6,
                    train_checkpoint_every=20,
                    train_eval_every=10**6,
                )
                how = chance.choice(["launcher", "worker", "interrupt"])
                row = one(training, how, chance, temporary)
                seen.append(row)
                print(f"{cycle:5}  {how:9} {' '.join(f'{value:>9,}' for value in row)}", flush=True)
    problems = judge(seen)
    print("\n".join(problems) or "nothing is left behind, and nothing grows")
    figures(
        lower={
            "left processes, sockets and files": sum(sum(row[1:4]) for row in seen),
            "checkpoints, MB": seen[-1][4],
            "memory of the starting process, MB": seen[-1][5],
        }
    )
    sys.exit(1 if problems else 0)


def one(
    training: Training, how: str, chance: random.Random, temporary: pathlib.Path
) -> tuple[int, ...]:
    """Returns step, processes, sockets, temporary files, MB, MB, open files."""
    store = training.checkpoints()

    def newest() -> int:
        return max(store.steps(), default=0)

    before = newest()
    launcher = training.start()
    of_training: list[psutil.Process] = []
    try:
        wait(lambda: newest() > before)
        time.sleep(chance.uniform(0, 1))  # at a random time between two checkpoints
        of_training += psutil.Process(launcher.pid).children(recursive=True)
        if how == "worker":
            chance.choice(of_training).kill()
            step = newest()
            wait(lambda: newest() > step + 20)
            of_training += psutil.Process(launcher.pid).children(recursive=True)
        launcher.send_signal(signal.SIGKILL if how == "launcher" else signal.SIGINT)
        launcher.wait()
    finally:
        launcher.kill()
    _, left = psutil.wait_procs(of_training, timeout=END_SECONDS)
    listening = sum(
        each.status == psutil.CONN_LISTEN for process in left for each in process.net_connections()
    )
    for process in left:
        process.kill()
    me = psutil.Process()
    root = pathlib.Path(training.given.working_dir)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return (
        newest(),
        len(left),
        listening,
        sum(1 for _ in temporary.rglob("*")),
        size // 10**6,
        me.memory_info().rss // 10**6,
        me.num_fds(),
    )


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"no newer checkpoint within {START_SECONDS:.0f} s")
        time.sleep(0.05)


def judge(rows: list[tuple[int, ...]]) -> list[str]:
    """Returns what is left or grows."""
    problems = ["processes were left"] if any(row[1] for row in rows) else []
    third = len(rows) // 3
    if not third:
        return problems
    names = ("temporary files", "MB of checkpoints", "MB of memory", "open files")
    for column, (name, slack) in enumerate(zip(names, (0, 1, 10, 0), strict=True), start=3):
        before = statistics.median(row[column] for row in rows[third : 2 * third])
        after = statistics.median(row[column] for row in rows[2 * third :])
        if after > before + slack:
            problems.append(f"{name}: from {before:,.0f} to {after:,.0f}")
    return problems


if __name__ == "__main__":
    main()
