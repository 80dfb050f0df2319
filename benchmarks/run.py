"""Runs all benchmarks in one sitting, and writes RESULTS.md.

    python benchmarks/run.py [--only fit --only search] [--archive FOLDER]
    python benchmarks/run.py --list
    python benchmarks/run.py --page

The benchmarks run one after another; ``sitting/plan.py`` has their words. After each one, the
sitting writes ``results.json`` and ``RESULTS.md``, so you may interrupt it. A benchmark that fails,
or that lacks its data, keeps its old section. The sitting compares each main figure with the value
before. Nothing else should use the machine meanwhile.

Exit code: 0; 1 if a benchmark failed, or if none could run; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import time
from collections.abc import Sequence

from sitting import page, record
from sitting.plan import PLAN, VARIABLE, Benchmark, NoArchive, folder_of_archives, placeholders
from sitting.running import BENCHMARKS, Failed, measure

BUSY = 0.5
"""Load of a machine that other programs use."""


def main(words: Sequence[str] | None = None, plan: Sequence[Benchmark] = PLAN) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[6:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in plan]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="repeatable")
    parser.add_argument("--list", action="store_true", help="list the benchmarks, and run none")
    parser.add_argument("--page", action="store_true", help="write RESULTS.md, and run none")
    parser.add_argument(
        "--archive",
        default=os.environ.get(VARIABLE),
        metavar="FOLDER",
        help=f"with the archives of CIFAR-10; default: the variable {VARIABLE}",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=BENCHMARKS,
        metavar="FOLDER",
        help="of results.json and RESULTS.md; default: benchmarks/",
    )
    args = parser.parse_args(words)
    chosen = [each for each in plan if not args.only or each.name in args.only]
    try:
        book = Book(args.output, plan)
        if args.list:
            show(chosen, book)
            return 0
        if args.page:
            book.write_page()
            return 0
        return sit(chosen, book, folder_of_archives(args.archive))
    except NoArchive as error:
        parser.error(f"--archive: {error}")
    except record.BadResults as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the results so far are written", flush=True)
        return 130


class Book:
    """The results in a folder."""

    def __init__(self, folder: pathlib.Path, plan: Sequence[Benchmark]):
        self._folder = folder
        self._json, self._page = folder / "results.json", folder / "RESULTS.md"
        self._plan = plan
        self.measurements = record.load(self._json)

    def add(self, name: str, found: record.Measurement) -> record.Measurement:
        """Compares a measurement with the one before, and writes both files."""
        self.measurements = record.load(self._json)  # another sitting may have written meanwhile
        found = record.with_before(found, self.measurements.get(name))
        self.measurements[name] = found
        order = {each.name: index for index, each in enumerate(self._plan)}
        ordered = sorted(self.measurements.items(), key=lambda item: order.get(item[0], len(order)))
        self.measurements = dict(ordered)
        self._folder.mkdir(parents=True, exist_ok=True)
        record.save(self._json, self.measurements)
        self.write_page()
        return found

    def write_page(self) -> None:
        """Writes RESULTS.md."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = page.page(self._plan, self.measurements, BENCHMARKS / "remarks")
        record.replace(self._page, text)


def show(chosen: Sequence[Benchmark], book: Book) -> None:
    """Prints name, date and seconds of the last measurement, and words."""
    for each in chosen:
        last = book.measurements.get(each.name)
        date = last.date if last else "never"
        seconds = f"{last.seconds:,.0f} s" if last and last.seconds is not None else ""
        print(f"{each.name:18} {date:10} {seconds:>8}  {each.script}.py {' | '.join(each.runs)}")


def sit(chosen: Sequence[Benchmark], book: Book, archives: pathlib.Path | None) -> int:
    """Runs benchmarks; returns the exit code."""
    began = time.monotonic()
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    worse: list[str] = []

    def say(number: int, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"[{number} of {len(chosen)}, {minutes}:{seconds:02}] {text}", flush=True)

    for number, each in enumerate(chosen, start=1):
        if reason := each.missing(archives):
            skipped[each.name] = reason
            say(number, f"{each.name} skipped: {reason}")
            continue
        load = os.getloadavg()[0]
        busy = f"; load {load:.1f}, so timings are noisy" if load > BUSY and number == 1 else ""
        say(number, f"{each.name}{busy}")
        try:
            found = measure(
                each, placeholders(archives), lambda line: print(f"    {line}", flush=True)
            )
        except Failed as error:
            failed[each.name] = str(error)
            say(number, f"{each.name} failed: {error}\n{error.log}".rstrip())
            continue
        found = book.add(each.name, found)
        for name, figure in found.figures.items():
            change = "" if figure.ratio is None else f", {figure.ratio:.2f} of before"
            mark = ", WORSE" if figure.worse else ""
            print(f"  {name}: {page.shown(figure.value)}{change}{mark}", flush=True)
            worse += [f"{each.name}: {name}"] if figure.worse else []

    measured = len(chosen) - len(failed) - len(skipped)
    say(len(chosen), f"{measured} measured, {len(skipped)} skipped, {len(failed)} failed")
    for title, found_here in (("skipped", skipped), ("failed", failed)):
        for name, reason in found_here.items():
            print(f"{title}: {name}: {reason}")
    for name in worse:
        print(f"worse by more than {record.WORSE:.0%}: {name}")
    return 1 if failed or not measured else 0


def interrupt(number: int, frame: object) -> None:
    """Ends the sitting as Ctrl-C does: a benchmark has a session of its own, and would go on."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup
            signal.signal(each, interrupt)
    sys.exit(main())
