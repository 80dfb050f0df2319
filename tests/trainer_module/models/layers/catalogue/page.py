"""The page of the docs that has the catalogue: written by ``make layers``, held true by a test."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[5]
PAGE = ROOT / "docs" / "reference" / "layers.md"
COLUMNS = {
    "one_device": "one device",
    "mirrored": "2 replicas",
    "stages": "2 stages, 2 microbatches",
    "remat": "`remat`",
    "jit": "`jit`",
}
"""Topology -> heading."""

_TITLE = "## Keras "

Verdicts = dict[str, dict[str, list[str]]]
"""Row -> topology -> verdict, and why."""

HEAD = """\
# Layers

<!-- written by make layers -->

This page compares training in Stagecraft with the `train_step` of Keras on one device, for every
Keras layer. Both start with equal weights, batches and optimizer, and compute in float64. The
comparison is after one step and after five steps.

* *Equal*: loss, weights and state differ by at most 1e-10. If TensorFlow or Keras computes in
  float32 (3D pooling, some image layers), they differ by at most 1e-6.
* *Equal by part*: the layer uses the statistics of a part of the batch, which belongs to one
  replica or microbatch. Keras does the same under `MirroredStrategy`. The result equals that of one
  device that takes the same parts one after the other.
* *Equal in distribution*: the layer draws other random numbers than under Keras, from the same
  distribution.
* *Refused*: the training does not start. The number refers to the list of errors below the table.

For Dropout, SpatialDropout, AlphaDropout, GaussianDropout and GaussianNoise, the random numbers
depend only on seed, layer, step and row of the batch. They are the same on each topology. Other
random layers draw as in Keras, and draw other numbers on another topology. `run`, `plan` and
`parity` name these layers.

"""


def write() -> None:
    """Measures all rows on this stack, and writes its section of the page."""
    found = measure(list(COLUMNS))
    wrong = [(name, t, *v) for name, of in found.items() for t, v in of.items() if v[0] == "wrong"]
    for each in wrong:
        print("WRONG:", *each, file=sys.stderr)
    if wrong:
        raise SystemExit(1)
    from catalogue import run  # TensorFlow

    counts = put(found, {row.name: row.needs for row in run.all_rows()})
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def put(found: Verdicts, needs: dict[str, str]) -> Counter[str]:
    """Writes the section of the Keras that is installed; the others stay.

    Args:
        found: what was measured.
        needs: row -> what Keras needs for it that is not installed; in the order of the page.
    """
    section, counts = _section(found, needs)
    sections = _sections() | {_version(): section}
    order = sorted(sections, key=lambda name: [int(part) for part in name.split(".")])
    bodies = [f"{_TITLE}{name}\n\n{sections[name].strip()}\n" for name in order]
    PAGE.write_text("\n".join([HEAD.rstrip() + "\n", *bodies]), encoding="utf-8")
    return counts


def _version() -> str:
    return ".".join(importlib.metadata.version("keras").split(".")[:2])


def _sections() -> dict[str, str]:
    """Version of Keras -> its section."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = {}
    for part in text.split(f"\n{_TITLE}")[1:]:
        version, _, body = part.partition("\n")
        found[version] = body
    return found


def measure(topologies: Sequence[str], names: Sequence[str] = (), processes: int = 2) -> Verdicts:
    """Trains rows, in several processes."""
    from catalogue import run  # TensorFlow

    wanted = [row.name for row in run.all_rows() if not row.needs]
    wanted = [name for name in wanted if not names or name in names]
    found: Verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        outs = [pathlib.Path(folder, f"{index}.json") for index in range(processes)]
        started = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "catalogue.run", out, ",".join(topologies)),
                    *wanted[index::processes],
                ],
                cwd=pathlib.Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for index, out in enumerate(outs)
        ]
        for process, out in zip(started, outs, strict=True):
            printed = process.communicate()[0]
            if process.returncode:
                raise RuntimeError(printed[-3000:])
            found |= json.loads(out.read_text())
    return {name: found[name] for name in wanted}


def read() -> tuple[dict[str, dict[str, str]], list[str]]:
    """What the page says of this Keras: row -> topology -> cell; the sentences of the refusals."""
    lines = _sections().get(_version(), "").splitlines()
    rows = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == len(COLUMNS) + 1 and not cells[0].startswith("-"):
            rows[cells[0]] = dict(zip(COLUMNS, cells[1:], strict=True))
    rows.pop("layer", None)
    sentences = [line.partition(". ")[2] for line in lines if line[:1].isdigit() and ". " in line]
    return rows, sentences


def _section(found: Verdicts, needs: dict[str, str]) -> tuple[str, Counter[str]]:
    sentences: list[str] = []
    counts: Counter[str] = Counter()

    def cell(verdict: str, why: str) -> str:
        counts[verdict] += 1
        if verdict != "refused":
            return verdict
        if why not in sentences:
            sentences.append(why)
        return f"refused ({sentences.index(why) + 1})"

    lines = [
        f"| layer | {' | '.join(COLUMNS.values())} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for name, missing in needs.items():
        if missing:
            why = f"Keras needs {missing} for this layer; Stagecraft does not use {missing}"
            cells = [cell("refused", why)] * len(COLUMNS)
        else:
            cells = [cell(found[name][t][0], general(found[name][t][1])) for t in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    listed = "\n".join(f"{number}. {each}" for number, each in enumerate(sentences, start=1))
    total = sum(counts.values())
    summed = f"Results: {total}. " + ", ".join(f"{n} {v}" for v, n in counts.most_common()) + "."
    return f"{summed}\n\n{chr(10).join(lines)}\n\nErrors of the refused rows:\n\n{listed}\n", counts


def general(sentence: str) -> str:
    """Returns a refusal without the names of the row. Markdown takes ``[a] [b]`` for a link."""
    return sentence.replace("\n", " ").replace("catalogue:row", "MODEL").replace("] [", "], [")


if __name__ == "__main__":
    write()
