"""Draws the figures of docs/images from the project's own numbers; and puts them into pages.

``python tools/docs/pictures.py`` writes them: schedules from the schedule that the engine follows,
speed-ups from what the benchmark gave. In the site they become part of the page, so that their text
has the colour of the page's, light or dark.
"""

from __future__ import annotations

import json
import pathlib
import re
from html import escape
from typing import Any

from stagecraft.trainer_module.pipeline_parallel.schedule import FORWARD, passes, timetable

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"

STAGES, MICROBATCHES = 3, 4
BLUE, ORANGE, GREEN = "#1976d2", "#d9730d", "#2e8b57"

_IMAGE = re.compile(r"!\[(?P<meaning>[^\]]*)\]\((?:\.\./)*images/(?P<name>[\w-]+)\.svg\)")
_STYLE = "<style>svg{color:#333}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the figure itself where a page shows it."""

    def inline(match: re.Match[str]) -> str:
        text = (IMAGES / f"{match['name']}.svg").read_text().strip()
        return text.replace(_STYLE, "").replace("\n", "")

    return _IMAGE.sub(inline, markdown)


class Drawing:
    """A figure in as much of SVG as it needs; lengths are in pixels, from the left and the top."""

    def __init__(self, width: float, height: float):
        """An empty one."""
        self._size = (width, height)
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, label: str) -> None:
        """A filled box with a label in its middle."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" '
            f'fill="{fill}"/>'
            f'<text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" text-anchor="middle" '
            f'fill="#fff">{escape(label)}</text>'
        )

    def frame(
        self, x: float, y: float, width: float, height: float, *, dashed: bool = False
    ) -> None:
        """An empty box."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" fill="none" '
            f'stroke="currentColor"{dashes}/>'
        )

    def text(self, x: float, y: float, words: str) -> None:
        """A line that begins at x."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" fill="currentColor">{escape(words)}</text>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, words: str) -> None:
        """An arrow, words above it."""
        tip = 5 if to_x > x else -5
        self._parts.append(
            f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}m{-tip} -4l{tip} 4l{-tip} 4" fill="none" '
            'stroke="currentColor"/>'
            f'<text x="{(x + to_x) / 2:g}" y="{y - 4:g}" text-anchor="middle" '
            f'fill="currentColor">{escape(words)}</text>'
        )

    def done(self, meaning: str) -> str:
        """The file's text."""
        width, height = self._size
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'style="max-width:{width:g}px;width:100%" role="img" font-family="sans-serif" '
            f'font-size="12"><title>{escape(meaning)}</title>{_STYLE}\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def schedules() -> str:
    """Three stages: the whole batch at once, gpipe, 1f1b; on one scale of time."""
    whole = timetable(passes("gpipe", 1, STAGES), [4.0] * STAGES, [8.0] * STAGES)
    rows = [("no microbatches", whole)]
    for name in ("gpipe", "1f1b"):
        slots = timetable(passes(name, MICROBATCHES, STAGES), [1.0] * STAGES, [2.0] * STAGES)
        rows.append((f"microbatch_schedule: {name}", slots))
    unit, height, left, group = 17, 22, 64, 112
    end = max(slot.end for _, slots in rows for slot in slots)
    drawing = Drawing(left + unit * end + 10, group * len(rows))
    for index, (title, slots) in enumerate(rows):
        top = index * group + 24
        drawing.text(0, top - 8, f"{title}: {max(slot.end for slot in slots):g} units of time")
        for stage in range(STAGES):
            drawing.text(0, top + stage * (height + 3) + 15, f"stage {stage}")
        for slot in slots:
            direction, stage, microbatch = slot.done
            drawing.box(
                left + unit * slot.begin,
                top + stage * (height + 3),
                unit * (slot.end - slot.begin) - 1,
                height,
                BLUE if direction == FORWARD else ORANGE,
                f"{'F' if direction == FORWARD else 'B'}{microbatch}",
            )
    return drawing.done("Schedules of three stages and four microbatches")


def speed_ups() -> str:
    """Measured against ideal, from the rows of the benchmark."""
    overlap = json.loads((ROOT / "benchmarks" / "results.json").read_text())["overlap"]
    lines = overlap["outputs"][0] if "outputs" in overlap else overlap["markdown"]
    rows = [line.split() for line in lines if line.startswith("1f1b ")]
    # Columns: schedule, stages, virtual stages, microbatches, ms, ms, speed-up, ideal.
    found = [(row[1], row[3], row[6], row[7]) for row in rows]
    left, unit, height = 190, 130, 18
    drawing = Drawing(left + unit * 3 + 60, 26 * len(found) + 24)
    for index, (stages, microbatches, measured, ideal) in enumerate(found):
        top = index * 26 + 4
        drawing.text(0, top + 14, f"{stages} stages, {microbatches} microbatches")
        drawing.frame(left, top, unit * float(ideal), height)
        drawing.box(left, top, unit * float(measured), height, GREEN, measured)
        drawing.text(left + unit * float(ideal) + 6, top + 14, ideal)
    drawing.text(left, 26 * len(found) + 18, "filled: measured; frame: M·K / (M + K − 1)")
    return drawing.done("Speed-up over one device: measured and maximum")


def grid() -> str:
    """Two workers of two replicas of two stages: who has what of 128 examples, what is summed."""
    workers, replicas, stages, batch = 2, 2, 2, 128
    part = batch // (workers * replicas)
    width, height, gap = 130, 40, 14
    drawing = Drawing(690, (height + gap) * workers * replicas + 58)
    for row in range(workers * replicas):
        worker, replica = divmod(row, replicas)
        top = row * (height + gap) + 8
        drawing.text(0, top + 18, f"worker {worker}, replica {replica}")
        drawing.text(0, top + 34, f"examples {row * part} to {(row + 1) * part - 1}")
        for stage in range(stages):
            x = 175 + stage * (width + 120)
            drawing.box(x, top, width, height, BLUE, f"stage {stage}")
            if stage + 1 < stages:
                drawing.arrow(x + width + 4, top + 14, x + width + 116, top + 14, "activations")
                drawing.arrow(x + width + 116, top + 30, x + width + 4, top + 30, "")
    bottom = (height + gap) * workers * replicas
    for stage in range(stages):
        x = 175 + stage * (width + 120)
        drawing.frame(x - 8, 1, width + 16, bottom + 6, dashed=True)
        drawing.text(x - 8, bottom + 26, "all-reduce: gradients")
        drawing.text(x - 8, bottom + 42, f"of stage {stage}, one vector per step")
    return drawing.done("A grid of two workers, two replicas, two stages")


PICTURES = {"schedules": schedules, "speed-ups": speed_ups, "grid": grid}

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw())
