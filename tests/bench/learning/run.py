#!/usr/bin/env python3
"""Runs the learning experiments and writes DIR/results.jsonl, DIR/tables.md and figures.

   python3 tests/bench/learning/run.py --corpus FILE --out DIR [--only NAME[,NAME...]] [--seeds 1,2,3] [--jobs N] [--smoke]

FILE: text with a blank line or a WikiText heading between documents; every sixth document is held out. Programs are taken from
$ANYORDER_BIN, or build/bin of this source tree. A job whose records are in results.jsonl is not run again. --jobs: how many run
at once, each on one thread. --smoke: tiny sizes, to see that everything runs.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import corpus
import experiments
import tables
from programs import SOURCE


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="needed by " + ", ".join(sorted(experiments.NEEDS_TEXT)))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(experiments.EXPERIMENTS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    chosen.seeds = [int(seed) for seed in chosen.seeds.split(",")]
    chosen.binaries = Path(os.environ.get("ANYORDER_BIN", SOURCE / "build/bin"))
    # What programs.py wants to know.
    chosen.anyorder, chosen.work, chosen.set = chosen.binaries / "anyorder", chosen.out.resolve(), []
    chosen.vocab_size = 300 if chosen.smoke else experiments.VOCAB_SIZE
    unknown = [name for name in chosen.only if name not in experiments.EXPERIMENTS]
    if unknown:
        parser.error(f"--only {unknown[0]}: not one of {', '.join(experiments.EXPERIMENTS)}")
    if chosen.corpus is None and experiments.NEEDS_TEXT & set(chosen.only):
        parser.error("--corpus FILE is needed; or name other experiments with --only")
    return chosen


class Results:
    """results.jsonl: one line a job, {"job": key, "records": [...]}."""

    def __init__(self, path):
        self.path = path
        self.lock = Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.jobs = {job["job"]: job["records"] for job in map(json.loads, lines)}

    def run(self, job):
        records = job.run()
        with self.lock:
            self.jobs[job.key] = records
            with self.path.open("a") as file:
                file.write(json.dumps({"job": job.key, "records": records}) + "\n")
            print("done:", job.key, flush=True)

    def records(self):
        return [record for records in self.jobs.values() for record in records]


def main():
    chosen = options()
    chosen.out.mkdir(parents=True, exist_ok=True)
    # Short waits: two ranks or jobs on one core must not spin.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if experiments.NEEDS_TEXT & set(chosen.only):
        corpus.prepare(chosen)
    results = Results(chosen.out / "results.jsonl")
    jobs = [job for name in chosen.only for job in experiments.EXPERIMENTS[name](chosen) if job.key not in results.jobs]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(results.run, jobs))
    tables.write(results.records(), chosen.out)
    print(f"tables and figures: {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
