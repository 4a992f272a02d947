"""Plots as inline SVG: a title and a description for those who listen, colours from the page, no script.

Every plot is 360 units wide, so that its text stays readable on a phone. Colours are the page's CSS variables --p0…; a
part that is tall enough carries its number, parts stand in the legend's order, and a table with the same numbers stands
beside each plot on the page, so nothing depends on telling colours apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 360
HEIGHT = 230
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 22, 34
LETTER = 7  # width of one in a plot's font, at most
LABEL_HEIGHT = 15  # a part at least this high has room for its number


@dataclass(frozen=True)
class Series:
    """A named row of numbers; None is a gap. ``dashed`` tells the reference's lines from our own without colour."""

    name: str
    values: Sequence[float | None]
    dashed: bool = False


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from at or below ``low`` to at or above ``high``."""
    if not high > low:
        high = low + (abs(low) * 0.1 or 1.0)
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def stacked(title: str, description: str, labels: Sequence[str], parts: Sequence[Series], totals: Sequence[float],
            unit: str) -> str:  # fmt: skip
    """Bars of parts on each other, one a label; above each its total, which rounding keeps from being their sum."""
    ticks = nice_ticks(0, max([*totals, 1e-9]) * 1.05)
    plot = _Plot(title, description, ticks, unit)
    step = plot.width / max(1, len(labels))
    for i, label in enumerate(labels):
        x, y = plot.left + step * (i + 0.18), 0.0
        for number, part in enumerate(parts):
            value = part.values[i] or 0
            top = plot.y(y + value)
            plot.add(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{step * 0.64:.1f}" height="{max(0.0, plot.y(y) - top):.1f}"'
                f' fill="var(--p{number})"><title>{escape(part.name)}, {escape(label)}: {value:.4g} {escape(unit)}'
                "</title></rect>"
            )
            if plot.y(y) - top >= LABEL_HEIGHT:
                plot.add(_text(x + step * 0.32, (plot.y(y) + top) / 2 + 4, f"{value:.3g}", "middle", "in"))
            y += value
        plot.text(x + step * 0.32, plot.y(y) - 4, f"{totals[i]:.1f}", "middle")
        plot.text(x + step * 0.32, HEIGHT - BOTTOM + 14, label, "middle")
    return plot.svg([(part.name, f"var(--p{i})", False) for i, part in enumerate(parts)])


def lines(title: str, description: str, labels: Sequence[str], series: Sequence[Series], unit: str) -> str:
    """Lines over labels at equal distances, from a zero that need not be shown."""
    values = [value for one in series for value in one.values if value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = (high - low) * 0.1 or abs(high) * 0.05 or 1.0
    ticks = nice_ticks(max(0.0, low - margin) if low >= 0 else low - margin, high + margin, 4)
    plot = _Plot(title, description, ticks, unit)
    step = plot.width / max(1, len(labels) - 1)
    every = max(1, -(-len(labels) // 6))
    for i, label in enumerate(labels):
        if i % every == 0:
            anchor = "end" if i and i == len(labels) - 1 else "middle"
            plot.text(plot.left + step * i, HEIGHT - BOTTOM + 18, label, anchor)
    for number, one in enumerate(series):
        points = [
            (plot.left + step * i, plot.y(value), value) for i, value in enumerate(one.values) if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        plot.add(f'<polyline points="{path}" fill="none" stroke="var(--p{number})" stroke-width="2"{dash}/>')
        for x, y, value in [] if one.dashed else points:
            plot.add(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.5 if len(points) < 40 else 1.2}" fill="var(--p{number})">'
                f"<title>{escape(one.name)}: {value:.5g} {escape(unit)}</title></circle>"
            )
    legend = [(one.name, f"var(--p{i})", one.dashed) for i, one in enumerate(series)]
    return plot.svg(legend if len(legend) > 1 else [])  # one line alone is what the title says


def waterfall(title: str, description: str, steps: Sequence[tuple[str, float]], marks: Sequence[tuple[str, float]],
              unit: str) -> str:  # fmt: skip
    """Steps that add up, from left to right on lines of their own, and upright marks such as a forecast."""
    total = sum(value for _, value in steps)
    ticks = nice_ticks(0, max([total, *(value for _, value in marks)]) * 1.02)
    left, row = 112, 24
    height = TOP + row * (len(steps) + 1) + 14 * len(marks) + BOTTOM
    scale = (WIDTH - left - 46) / (ticks[-1] - ticks[0])
    body, at = [], 0.0
    bottom = TOP + row * (len(steps) + 1)
    for tick in ticks:
        x = left + tick * scale
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" class="grid"/>')
        body.append(_text(x, bottom + 12, f"{tick:g}", "middle"))
    for _, value in marks:  # below the numbers, so that these stay readable
        x = left + value * scale
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" class="mark"/>')
    for number, (name, value) in enumerate([*steps, ("total", total)]):
        y = TOP + row * number
        start = 0.0 if name == "total" else at
        body.append(_text(left - 6, y + 15, name, "end"))
        body.append(
            f'<rect x="{left + min(start, start + value) * scale:.1f}" y="{y + 4}" '
            f'width="{max(0.8, abs(value) * scale):.1f}" height="{row - 8}"'
            f' fill="var(--p{number if name != "total" else 5})"/>'
        )
        body.append(_text(left + (start + value) * scale + 4, y + 15, f"{value:.1f}", "start"))
        at += value if name != "total" else 0
    for number, (name, value) in enumerate(marks):
        x = left + value * scale
        anchor = "end" if x > WIDTH * 0.6 else "middle"
        body.append(_text(x, bottom + 26 + 13 * number, f"{name}: {value:.1f} {unit}", anchor))
    return _document(title, description, height, body)


class _Plot:
    """Axes, grid and legend around a body."""

    def __init__(self, title: str, description: str, ticks: Sequence[float], unit: str) -> None:
        self.title, self.description, self.unit = title, description, unit
        self.low, self.high = ticks[0], ticks[-1]
        self._body: list[str] = []
        digits = next((n for n in range(4, 7) if len({_short(tick, n) for tick in ticks}) == len(ticks)), 7)
        shown = [_short(tick, digits) for tick in ticks]
        self.left = max(LEFT, LETTER * max(len(text) for text in shown) + 8)
        self.width = WIDTH - self.left - RIGHT
        for tick, text in zip(ticks, shown, strict=True):
            y = self.y(tick)
            self.add(f'<line x1="{self.left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            self.text(self.left - 5, y + 4, text, "end")

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def add(self, element: str) -> None:
        self._body.append(element)

    def text(self, x: float, y: float, text: str, anchor: str) -> None:
        self.add(_text(x, y, text, anchor))

    def svg(self, legend: Sequence[tuple[str, str, bool]]) -> str:
        rows, x, y = [], float(LEFT), HEIGHT + 4.0
        for name, colour, dashed in legend:
            width = 22 + 6.6 * len(name)
            if x + width > WIDTH and x > LEFT:
                x, y = float(LEFT), y + 16
            dash = ' stroke-dasharray="5 4"' if dashed else ""
            rows.append(
                f'<line x1="{x:.0f}" x2="{x + 14:.0f}" y1="{y - 4:.0f}" y2="{y - 4:.0f}" stroke="{colour}"'
                f' stroke-width="{3 if dashed else 8}"{dash}/>'
            )
            rows.append(_text(x + 18, y, name, "start"))
            x += width + 8
        unit = _text(4, 9, self.unit, "start")
        return _document(self.title, self.description, int(y) + 8, [unit, *self._body, *rows])


def _short(value: float, digits: int) -> str:
    """A tick's number: 460k, 1.25M."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor * 10 or (factor > 1e3 and abs(value) >= factor):
            return f"{value / factor:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{chosen}>{escape(text)}</text>'


def _document(title: str, description: str, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}. {escape(description)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(body)}</svg>"
    )
