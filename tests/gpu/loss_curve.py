#!/usr/bin/env python3
"""Compares the losses of one training run on the CPU and on the GPU, same configuration and seed.

Usage: loss_curve.py COMMAND CURVES --bin DIR --config FILE --text FILE [METRICS METRICS]
  pack     writes CURVES, of metrics.jsonl of the CPU in fp32 and in bf16, and what they belong to: the programs in --bin and their commit,
           the configuration and the text
  match    says whether CURVES belong to these programs, configuration and text
  compare  metrics.jsonl of the GPU in fp32 and in bf16 with CURVES

Training repeats no rounding error exactly and lets each grow, so that no fixed difference would be a bound. But the CPU's own two runs
say how far bf16's rounding, 2^16 times fp32's, carries this run from its fp32 curve: root mean square r and largest m over all steps. The
GPU rounds the same values to bf16 at the same places, so its bf16 curve is such a draw as well and may be as far from the fp32 curve;
allowed is FACTOR times, for the chance in both. Its fp32 curve rounds 2^16 times finer and may not be farther than r and m.
Prints JSON lines and, last, what was found. Exit status 0 done or within the bounds, 1 beyond them or CURVES of something else, 64 bad files.
"""
import argparse
import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path

FACTOR = 3
PRINTED = 20  # points of each curve
PROGRAMS = ("anyorder-prep", "anyorder-train")
NAMES = ("cpu_fp32", "cpu_bf16", "cuda_fp32", "cuda_bf16")


def losses(path):
    with open(path, encoding="utf-8") as file:
        return {record["step"]: record["loss"] for record in map(json.loads, file)}


def commit_of(folder):
    """Of the bundle or of the build that the programs are from."""
    manifest = folder.parent / "MANIFEST.json"
    if manifest.exists():
        return json.loads(manifest.read_text())["commit"]
    done = subprocess.run(["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def digest(*paths):
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def origin(options):
    return {"commit": commit_of(options.bin), "programs": digest(*(options.bin / name for name in PROGRAMS)),
            "configuration": digest(options.config), "text": digest(options.text)}


def pack(options):
    curves = [losses(path) for path in options.metrics]
    if len(curves) != 2 or not curves[0] or sorted(curves[0]) != sorted(curves[1]):
        print("pack needs the CPU's metrics in fp32 and in bf16, of the same steps")
        return 64
    record = {**origin(options), "steps": sorted(curves[0]), **{name: [curve[step] for step in sorted(curve)] for name, curve in zip(NAMES, curves)}}
    options.curves.write_text(json.dumps(record) + "\n")
    print(f"{options.curves}: {len(curves[0])} steps of commit {record['commit']}")
    return 0


def read_curves(path):
    """What `pack` has written; None if it is nothing of the kind."""
    try:
        record = json.loads(path.read_text())
        steps, curves = record["steps"], [record[name] for name in NAMES[:2]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if steps and all(len(curve) == len(steps) for curve in curves) else None


def match(options):
    record = read_curves(options.curves)
    if record is None:
        print(f"FAILED: {options.curves} is damaged; make it again with check.sh prepare")
        return 1
    here = origin(options)
    other = [f"{key} {record.get(key)}, here {value}" for key, value in here.items() if record.get(key) != value]
    if other:
        print(f"FAILED: {options.curves} is stale ({'; '.join(other)}); make it again with check.sh prepare")
        return 1
    print(f"{options.curves} is of commit {here['commit']}")
    return 0


def deviation(curve, base):
    """Root mean square and largest difference. NaN counts as infinite."""
    differences = [abs(curve[step] - base[step]) for step in base]
    differences = [math.inf if math.isnan(value) else value for value in differences]
    return math.sqrt(sum(value * value for value in differences) / len(differences)), max(differences)


def deviations(curves):
    """`curves`: the four, in the order of NAMES. Yields a record for each curve but the first."""
    base, noise = curves[0], deviation(curves[1], curves[0])
    yield {"loss_curve": "cpu bf16", "rms": noise[0], "largest": noise[1]}
    for name, curve, factor in (("cuda fp32", curves[2], 1), ("cuda bf16", curves[3], FACTOR)):
        rms, largest = deviation(curve, base)
        bounds = factor * noise[0], factor * noise[1]
        yield {"loss_curve": name, "rms": rms, "largest": largest, "rms_bound": bounds[0], "largest_bound": bounds[1],
               "passed": rms <= bounds[0] and largest <= bounds[1]}


def compare(options):
    record = read_curves(options.curves)
    if record is None or len(options.metrics) != 2:
        print("compare needs curves that `pack` has written, and the GPU's metrics in fp32 and in bf16")
        return 64
    steps = record["steps"]
    curves = [dict(zip(steps, record[name])) for name in NAMES[:2]] + [losses(path) for path in options.metrics]
    for path, curve in zip(options.metrics, curves[2:]):
        if sorted(curve) != steps:
            print(f"{path} has {len(curve)} steps, {options.curves} has {len(steps)}: not the same run")
            return 64
    for step in steps[::max(1, len(steps) // PRINTED)] + steps[-1:]:
        print(json.dumps({"loss_at_step": step, **dict(zip(NAMES, (curve[step] for curve in curves)))}))
    records = list(deviations(curves))
    for each in records:
        print(json.dumps(each))
    failed = [each for each in records if not each.get("passed", True)]
    print(f"{len(steps)} steps from {curves[0][steps[0]]:.3f} to {curves[0][steps[-1]]:.3f} nats; largest difference to the CPU's fp32: " +
          ", ".join(f"{each['loss_curve']} {each['largest']:.2g}" for each in records) +
          "".join(f"; {each['loss_curve']} is beyond {each['largest_bound']:.2g} (rms {each['rms']:.2g}, bound {each['rms_bound']:.2g})"
                  for each in failed))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("pack", "match", "compare"))
    parser.add_argument("curves", type=Path)
    for name in ("bin", "config", "text"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("metrics", type=Path, nargs="*")
    options = parser.parse_intermixed_args()
    return {"pack": pack, "match": match, "compare": compare}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
