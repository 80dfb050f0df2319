"""As much of SVG as the figures need. Text has the colour of what surrounds it."""

from __future__ import annotations

from html import escape

_STYLE = "<style>svg{color:#333}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"


class Drawing:
    """A figure; lengths are in pixels, from the left and the top."""

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
