"""Line charts as small SVG files."""

import math
from html import escape

WIDTH, HEIGHT = 680, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 190, 34, 46
COLOURS = ["#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a", "#bf3989"]


class Axis:
    """Maps values to pixels."""

    def __init__(self, values, pixels):
        low, high = min(values), max(values)
        if high > low:
            low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
        self.low, self.high = (low, high) if high > low else (low - 1, high + 1)
        self.pixels = pixels

    def place(self, value):
        begin, end = self.pixels
        return begin + (value - self.low) / (self.high - self.low) * (end - begin)

    def ticks(self, most=6):
        """Round numbers."""
        step = 10 ** math.floor(math.log10((self.high - self.low) / most))
        step = next(step * k for k in (1, 2, 5, 10) if (self.high - self.low) / (step * k) <= most)
        return [round(i * step, 10) for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def text(x, y, content, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(str(content))}</text>'


def line_chart(path, title, x_label, y_label, series, levels=()):
    """series: (name, [(x, y)...]); levels: (name, y), dotted. One colour a name;
    lines that share a name share the entry of the legend."""
    points = [p for _, line in series for p in line]
    x_axis = Axis([x for x, _ in points], (LEFT, WIDTH - RIGHT))
    y_axis = Axis([y for _, y in points] + [y for _, y in levels], (HEIGHT - BOTTOM, TOP))
    names = list(dict.fromkeys([name for name, _ in series] + [name for name, _ in levels]))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="11"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 20, title, "start", 'font-size="13" font-weight="bold"'),
           text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label),
           text(14, HEIGHT / 2, y_label, "middle", f'transform="rotate(-90 14 {HEIGHT / 2})"')]
    for tick in x_axis.ticks():
        x = x_axis.place(tick)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>' + text(x, HEIGHT - BOTTOM + 15, f"{tick:g}"))
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>' + text(LEFT - 6, y + 4, f"{tick:g}", "end"))
    for name, y in levels:
        height = y_axis.place(y)
        out.append(f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="{colour[name]}" stroke-dasharray="2 3"/>')
    for name, line in series:
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in line]
        path_data = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        out.append(f'<path d="M{path_data}" fill="none" stroke="{colour[name]}" stroke-width="1.2"/>')
    for i, name in enumerate(names):
        y = TOP + 10 + 16 * i
        out.append(f'<path d="M{WIDTH - RIGHT + 10} {y}h16" stroke="{colour[name]}" stroke-width="3"/>')
        out.append(text(WIDTH - RIGHT + 31, y + 4, name, "start"))
    path.write_text("\n".join(out) + "\n</svg>\n", encoding="utf-8")
