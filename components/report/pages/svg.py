"""Matplotlib figures as SVG that follows the page's colours, light and dark.

Figures use placeholder colours (:class:`Ink`), which :func:`inline` replaces by CSS variables.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"


class Ink:
    """Placeholders for the page's colours; each becomes a CSS variable."""

    TEXT = "#010101"
    MUTED = "#020202"
    LINE = "#030303"
    BLUE = "#040404"
    ORANGE = "#050505"
    GREEN = "#060606"
    VIOLET = "#070707"
    ON_COLOUR = "#080808"


_VARIABLES = {
    ink: f"var(--{name.lower().replace('_', '-')})"
    for name, ink in vars(Ink).items()
    if name.isupper()
}

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "stagecraft",  # the same figure, the same bytes
    "font.size": 12.0,
    "text.color": Ink.TEXT,
    "axes.axisbelow": True,
    "axes.edgecolor": Ink.LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": Ink.MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "grid.color": Ink.LINE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "xtick.color": Ink.LINE,
    "xtick.labelcolor": Ink.MUTED,
    "ytick.color": Ink.LINE,
    "ytick.labelcolor": Ink.MUTED,
}
"""Settings for ``matplotlib.rc_context``, while drawing a figure and in :func:`inline`."""


def inline(
    figure: Figure, name: str, description: str, tips: Mapping[str, str] | None = None
) -> Markup:
    """The figure, in colours of ``Ink`` and 72 units an inch, as an ``<svg>`` element.

    ``name``: letters, unique on the page. ``tips``: tooltips by an artist's ``gid``.
    """
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata=no_metadata)
    text = stream.getvalue()
    root = ET.fromstring(text[text.index("<svg") :])
    for element in list(root):
        if element.tag == f"{{{_SVG}}}metadata":
            root.remove(element)
    for definitions in root.iter(f"{{{_SVG}}}defs"):
        for style in definitions.findall(f"{{{_SVG}}}style"):  # would apply to the whole page
            definitions.remove(style)
    for element in root.iter():
        tip = (tips or {}).get(element.get("id", ""))
        if tip is not None:
            title = ET.Element(f"{{{_SVG}}}title")
            title.text = tip
            element.insert(0, title)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    root.set("stroke-linejoin", "round")
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return Markup(_themed(ET.tostring(root, encoding="unicode"), name))


def _themed(text: str, name: str) -> str:
    for ink, variable in _VARIABLES.items():
        text = text.replace(ink, variable)
    text = re.sub(r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px", text)
    # IDs are unique on the page.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
