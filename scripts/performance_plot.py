"""Two bars for each measurement, side by side: the share of a ceiling, and a ratio. As an SVG that
stands alone: it follows the reader's light or dark scheme and brings its own background, so that it
is legible on any page. Blue and orange of Okabe and Ito, which colour-blind readers tell apart; the
values are written as well.
"""
import dataclasses
import math
from xml.sax.saxutils import escape

WIDTH = 1000
ROW = 22
BAR = 12
TOP = 72
BOTTOM = 28
LABELS = 404   # the panels begin here
PANEL = 228    # from an axis's beginning to its end
SECOND = 712   # the second panel begins here
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .value { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .tick { fill: #59636e }
  .grid { stroke: #d8dee4 }
  .one { stroke: #1f2328; stroke-dasharray: 4 3 }
  .share { fill: #0072b2 }
  .ratio { fill: #d55e00 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .value { stroke: #0d1117 }
    .tick { fill: #9198a1 }
    .grid { stroke: #2a313c }
    .one { stroke: #f0f6fc }
    .share { fill: #56b4e9 }
    .ratio { fill: #e69f00 }
  }
"""


@dataclasses.dataclass
class Mark:
    label: str
    share: float         # of a ceiling, 1 for all of it
    ratio: float | None  # 1 for as fast as the other; None where there is no other


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x, top, bottom, kind):
    return f'<line x1="{x:g}" y1="{top:g}" x2="{x:g}" y2="{bottom:g}" class="{kind}"/>'


def axis(left, title, ticks, most, written, bottom):
    """A panel's title, and a grid line and a number for each tick."""
    lines = [text(left, TOP - 28, title)]
    for tick in ticks:
        x = left + PANEL * tick / most
        lines += [line(x, TOP - 4, bottom, "grid"), text(x, TOP - 10, written(tick), "tick", "middle")]
    return lines


def bar(left, y, value, most, kind, written):
    length = max(1.0, PANEL * value / most)
    return [f'<rect x="{left}" y="{y + (ROW - BAR) / 2:g}" width="{length:.1f}" height="{BAR}" '
            f'rx="2" class="{kind}"/>',
            text(left + round(length, 1) + 5, y + ROW / 2 + 4, written, "value")]


def steps(most):
    """Round numbers from 0 to `most`, ten at the most."""
    step = max(1, math.ceil(most / 10))
    return range(0, math.ceil(most / step) * step + 1, step)


def plot(title, share_title, ratio_title, marks):
    bottom = TOP + ROW * len(marks)
    height = bottom + BOTTOM
    ratios = steps(max((mark.ratio for mark in marks if mark.ratio is not None), default=1))
    most = ratios[-1]
    name = escape(f"{title}: {share_title}; {ratio_title}", {'"': "&quot;"})
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" role="img" aria-label="{name}">',
             f"<style>{STYLE}</style>",
             f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6" class="page"/>',
             text(16, 26, title, "title")]
    lines += axis(LABELS, share_title, (0, 0.25, 0.5, 0.75, 1), 1, lambda tick: f"{tick:.0%}", bottom)
    lines += axis(SECOND, ratio_title, ratios, most, lambda tick: f"{tick}x", bottom)
    lines.append(line(SECOND + PANEL / most, TOP - 4, bottom, "one"))
    for number, mark in enumerate(marks):
        y = TOP + ROW * number
        lines.append(text(LABELS - 12, y + ROW / 2 + 4, mark.label, anchor="end"))
        lines += bar(LABELS, y, mark.share, 1, "share", f"{mark.share:.0%}")
        if mark.ratio is not None:
            lines += bar(SECOND, y, mark.ratio, most, "ratio", f"{mark.ratio:.1f}x")
    return "\n".join(lines) + "\n</svg>\n"
