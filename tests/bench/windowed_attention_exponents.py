#!/usr/bin/env python3
"""Runs windowed_attention_bench over lengths and fits time and memory to powers of the length.

   windowed_attention_exponents.py BENCH [--repeats N] [--lengths 512,1024,...] [--window W] [--out results.jsonl]

Each measurement is a process of its own, repeated; of each point the median is fitted, by least squares of logarithms, and the
spread of the exponent is that of fits of single repetitions. Lengths must double. Prints Markdown tables.
"""

import argparse
import json
import math
import subprocess
from statistics import linear_regression, median

WAYS = ["dense", "online", "loop", "chunks", "fused"]


def measure(bench, way, length, window):
    command = [bench, "--way", way, "--length", str(length), "--window", str(window)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def exponent(points, differences):
    """Of memory the differences between lengths that double are fitted: what does not depend on the length, as code that the
    matrix library makes for a shape, is not in them."""
    if differences:
        lengths = sorted(points)
        points = {a: points[b] - points[a] for a, b in zip(lengths, lengths[1:])}
    lengths, values = zip(*sorted(points.items()))
    return linear_regression([math.log(x) for x in lengths], [math.log(max(1e-9, y)) for y in values]).slope


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192")
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--out")
    options = parser.parse_args()
    lengths = [int(x) for x in options.lengths.split(",")]
    values = {"forward": lambda r: r["forward"], "backward": lambda r: r["backward"], "bytes": lambda r: r["bytes"]}
    records = [(repeat, measure(options.bench, way, length, options.window))
               for repeat in range(options.repeats) for length in lengths for way in WAYS]
    if options.out:
        with open(options.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record | {"repeat": repeat}) + "\n" for repeat, record in records)
    for what, value in values.items():
        unit, scale = ("MiB", 2 ** -20) if what == "bytes" else ("ms", 1e3)
        print(f"\n| {what}, {unit} | " + " | ".join(f"T = {t}" for t in lengths) + " | exponent (of single repeats) |")
        print("|---" * (len(lengths) + 2) + "|")
        for way in WAYS:
            of = lambda t, only=None: [value(r) for i, r in records
                                       if r["way"] == way and r["length"] == t and only in (None, i)]
            middle = {t: median(of(t)) for t in lengths}
            single = [exponent({t: of(t, i)[0] for t in lengths}, what == "bytes") for i in range(options.repeats)]
            cells = " | ".join(f"{scale * middle[t]:.2f}" for t in lengths)
            print(f"| {way} | {cells} | {exponent(middle, what == 'bytes'):.2f} ({min(single):.2f} to {max(single):.2f}) |")


if __name__ == "__main__":
    main()
