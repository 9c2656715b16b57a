#!/usr/bin/env python3
"""Compares the losses of one training run on the CPU and on the GPU, same configuration and seed.

Usage: loss_curve.py CPU_FP32 CPU_BF16 CUDA_FP32 CUDA_BF16      (metrics.jsonl of each)

Training repeats no rounding error exactly and lets each grow, so that no fixed difference would be a bound. But the CPU's own two runs
say how far bf16's rounding, 2^16 times fp32's, carries this run from its fp32 curve: root mean square r and largest m over all steps. The
GPU rounds the same values to bf16 at the same places, so its bf16 curve is such a draw as well and may be as far from the fp32 curve;
allowed is FACTOR times, for the chance in both. Its fp32 curve rounds 2^16 times finer and may not be farther than r and m.
Prints JSON lines and, last, what was found. Exit status 0 within the bounds, 1 beyond, 64 bad files.
"""
import json
import math
import sys

FACTOR = 3
PRINTED = 20  # points of each curve


def losses(path):
    with open(path, encoding="utf-8") as file:
        return {record["step"]: record["loss"] for record in map(json.loads, file)}


def deviation(curve, base):
    """Root mean square and largest difference. NaN counts as infinite."""
    differences = [abs(curve[step] - base[step]) for step in base]
    differences = [math.inf if math.isnan(value) else value for value in differences]
    return math.sqrt(sum(value * value for value in differences) / len(differences)), max(differences)


def compare(curves):
    """`curves`: the four, in the order of the command line. Yields a record for each curve but the first."""
    base, noise = curves[0], deviation(curves[1], curves[0])
    yield {"loss_curve": "cpu bf16", "rms": noise[0], "largest": noise[1]}
    for name, curve, factor in (("cuda fp32", curves[2], 1), ("cuda bf16", curves[3], FACTOR)):
        rms, largest = deviation(curve, base)
        bounds = factor * noise[0], factor * noise[1]
        yield {"loss_curve": name, "rms": rms, "largest": largest, "rms_bound": bounds[0], "largest_bound": bounds[1],
               "passed": rms <= bounds[0] and largest <= bounds[1]}


def main():
    if len(sys.argv) != 5:
        print(__doc__)
        return 64
    curves = [losses(path) for path in sys.argv[1:]]
    steps = sorted(curves[0])
    for path, curve in zip(sys.argv[1:], curves):
        if sorted(curve) != steps or not steps:
            print(f"{path} has {len(curve)} steps, {sys.argv[1]} has {len(steps)}: not the same run")
            return 64
    for step in steps[::max(1, len(steps) // PRINTED)] + steps[-1:]:
        print(json.dumps({"loss_at_step": step, **dict(zip(("cpu_fp32", "cpu_bf16", "cuda_fp32", "cuda_bf16"),
                                                           (curve[step] for curve in curves)))}))
    records = list(compare(curves))
    for record in records:
        print(json.dumps(record))
    failed = [record for record in records if not record.get("passed", True)]
    print(f"{len(steps)} steps from {curves[0][steps[0]]:.3f} to {curves[0][steps[-1]]:.3f} nats; largest difference to the CPU's fp32: " +
          ", ".join(f"{record['loss_curve']} {record['largest']:.2g}" for record in records) +
          "".join(f"; {record['loss_curve']} is beyond {record['largest_bound']:.2g} (rms {record['rms']:.2g}, bound {record['rms_bound']:.2g})"
                  for record in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
