"""A drawing as SVG: lines, boxes and words, legible on a light and on a dark page.

The colours are classes, and the drawing itself says what they are on a dark screen: a page shows it as an image, and
nothing of the page's style reaches into that.
"""

from __future__ import annotations

from html import escape

STYLE = """
  svg { --ink: #1c2024; --soft: #5a6472; --line: #b4bcc8; --fill: #eef1f5; --live: #3d6fa8; --one: #b3470d;
    --more: #6a3fa0; --none: #8a93a0; --on: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6e9ee; --soft: #a5afbd; --line: #545e6c; --fill: #2a303a; --live: #8ab6ea; --one: #f2a065;
      --more: #c3a2f2; --none: #8a93a0; --on: #14171c; }
  }
  text { font: 14px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink); }
  text.small { font-size: 12px; } text.soft { fill: var(--soft); } text.strong { font-weight: 600; }
  text.code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 11px; }
  text.live { fill: var(--live); } text.one { fill: var(--one); } text.more { fill: var(--more); }
  text.on { fill: var(--on); font-weight: 600; }
  line, path, rect, circle { stroke-width: 1.5; }
  .rule { stroke: var(--line); fill: none; } .dash { stroke: var(--soft); fill: none; stroke-dasharray: 5 4; }
  .box { stroke: var(--line); fill: var(--fill); } .arrow { stroke: var(--ink); fill: none; }
  .tip { fill: var(--ink); stroke: none; } .softtip { fill: var(--soft); stroke: none; }
  .live { fill: var(--live); stroke: none; } .one { fill: var(--one); stroke: none; }
  .more { fill: var(--more); stroke: none; } .none { fill: none; stroke: var(--none); stroke-dasharray: 4 3; }
  .hold { fill: var(--on); stroke: var(--ink); } .frame { fill: none; stroke: var(--ink); stroke-width: 2.5; }
"""
TIP = 8


class Drawing:
    """A picture in the making; lengths are in pixels, from the upper left corner."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="title description">\n'
            f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>\n'
            f"<style>{STYLE}</style>"
        )
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        """Write a line of words; ``y`` is its base line."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str = "rule") -> None:
        """Draw a straight line."""
        self._parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{style}"/>')

    def box(self, x: float, y: float, width: float, height: float, style: str = "box") -> None:
        """Draw a rectangle with round corners."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{style}"/>')

    def dot(self, x: float, y: float, style: str = "hold") -> None:
        """Draw a small circle."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" class="{style}"/>')

    def arrow(self, x1: float, x2: float, y: float, style: str = "arrow") -> None:
        """Draw a level arrow from ``x1`` to ``x2``."""
        back = -TIP if x2 > x1 else TIP
        self.line(x1, y, x2 + back, y, style)
        tip = "softtip" if style == "dash" else "tip"
        self._parts.append(f'<path d="M{x2:g} {y:g} l{back} -5 v10 z" class="{tip}"/>')

    def svg(self) -> str:
        """Return the whole file."""
        return "\n".join([self._head, *self._parts, "</svg>", ""])
