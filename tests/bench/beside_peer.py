#!/usr/bin/env python3
"""Speed of training steps, or of generation (case generate:fp32), beside a peer, interleaved in one run so that both see the same machine.

The peer is a script that takes --preset --dtype --threads --batch --steps --repeats --dropout --json FILE and writes {"median": tokens/s,
"peak_rss_mb": ..., "torch": ..., "impl": ...}. Prints one JSON line per case: medians over the rounds, all values, ratio.

Usage: beside_peer.py --bin build/bin --peer SCRIPT [--python PYTHON] [--rounds 3] [--cases tiny:fp32 tiny:bf16 base:fp32 base:bf16]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# preset -> lanes, our steps, the peer's steps and repeats: a few seconds to a minute each
SIZES = {"tiny": (8, 20, 4, 3), "base": (2, 3, 1, 2), "llama": (4, 4, 2, 2), "generate": (8, 0, 2, 2)}


def run(command, environment):
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"beside_peer: {' '.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def ours(arguments, preset, dtype, environment):
    lanes, steps, _, _ = SIZES[preset]
    shared = ["--dtype", dtype, "--threads", str(arguments.threads)]
    if preset == "generate":
        output = run([f"{arguments.bin}/generate_bench", "--method", "left-to-right", "--lanes", str(lanes), *shared], environment)
    else:
        output = run([f"{arguments.bin}/step_bench", "--preset", preset, "--batch", str(lanes), "--steps", str(steps),
                      "--dropout", str(arguments.dropout), *shared], environment)
    result = json.loads(output.strip().splitlines()[-1])
    return result["tokens_per_second"], result["peak_rss_mib"]


def peers(arguments, preset, dtype, environment):
    lanes, _, steps, repeats = SIZES[preset]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([arguments.python, arguments.peer, "--preset", preset, "--dtype", dtype, "--threads", str(arguments.threads),
             "--batch", str(lanes), "--steps", str(steps), "--repeats", str(repeats), "--warmup", "1",
             "--dropout", str(arguments.dropout), "--json", file.name] + arguments.peer_options, environment)
        result = json.load(file)
    return result["median"], result["peak_rss_mb"], f"{result['impl']}, torch {result['torch']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--cases", nargs="+", default=["tiny:fp32", "tiny:bf16", "base:fp32", "base:bf16"])
    parser.add_argument("--peer-options", nargs="*", default=[])
    arguments = parser.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    for case in arguments.cases:
        preset, dtype = case.split(":")
        mine, theirs = [], []
        for _ in range(arguments.rounds):
            mine.append(ours(arguments, preset, dtype, environment))
            theirs.append(peers(arguments, preset, dtype, environment))
        speed = statistics.median(m[0] for m in mine)
        peer_speed = statistics.median(t[0] for t in theirs)
        print(json.dumps({
            "case": case, "threads": arguments.threads, "dropout": arguments.dropout,
            "tokens_per_second": round(speed, 1), "all": [m[0] for m in mine],
            "peer_tokens_per_second": round(peer_speed, 1), "peer_all": [round(t[0], 1) for t in theirs],
            "ratio": round(speed / peer_speed, 2), "peak_rss_mib": max(m[1] for m in mine),
            "peer_peak_rss_mib": round(max(t[1] for t in theirs)), "peer": theirs[0][2],
            "peer_options": arguments.peer_options}), flush=True)


if __name__ == "__main__":
    main()
