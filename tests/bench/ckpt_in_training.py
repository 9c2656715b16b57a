#!/usr/bin/env python3
"""What checkpoints and restarts cost a run, with the real programs: prints JSON lines.

- stall: what metrics.jsonl calls ckpt_stall_ms, beside a memcpy of the same bytes taken between rounds;
- following: step time by distance from the last save, relative to the steps furthest from one (the service writes meanwhile);
- committed: the time from STAGED to COMMITTED, as the service logged it, and in steps;
- restart: `kill -9` of everything, then from the launcher's start to the end of the first new step, beside that step's own time and one reading
  of the checkpoint with all checksums (`inspect --verify`).

Every round is a run of its own from an empty directory; a save every --every steps of a model with about --megabytes of state.

Usage: ckpt_in_training.py --bin build/bin [--ranks 1] [--rounds 3] [--steps 90] [--every 15] [--megabytes 160] [--dir DIR]
"""
import argparse
import collections
import ctypes
import datetime
import json
import math
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
from programs import STATE_LOG, Launch, Programs, json_lines, kill, processes  # noqa: E402

BYTES_PER_PARAMETER = 12  # fp32 weight and two Adam moments
NUM_LAYERS = 6


def seconds_of(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def spread(values):
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 3), "min": round(ordered[0], 3), "max": round(ordered[-1], 3), "n": len(ordered)}


def settings_of(arguments):
    # q, k, v, o and r are d x d, the feed-forward is 2 x d x 4d: 13 d^2 a layer.
    of_layer = arguments.megabytes * 2**20 / BYTES_PER_PARAMETER / NUM_LAYERS
    dim = max(64, round(math.sqrt(of_layer / 13) / 64) * 64)
    values = {
        "model.num_layers": NUM_LAYERS, "model.model_dim": dim, "model.num_heads": dim // 64,
        "model.head_dim": 64, "model.ffn_dim": 4 * dim, "model.mem_len": 32, "sampling.seq_len": 64,
        "sampling.reuse_len": 32, "sampling.num_predict": 10, "sampling.perm_size": 32,
        "train.steps": arguments.steps, "train.global_batch_size": 4, "train.micro_batch_size": 1,
        "checkpoint.every": arguments.every, "cpu.threads": 1}
    return [f"{key}={value}" for key, value in values.items()]


def memcpy_ms(num_bytes):
    """Best of five of one thread; the stall's median is compared with it."""
    source, target = ctypes.create_string_buffer(num_bytes), ctypes.create_string_buffer(num_bytes)
    ctypes.memset(source, 1, num_bytes)
    ctypes.memset(target, 2, num_bytes)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        ctypes.memmove(target, source, num_bytes)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


class Round:
    """Adds what it measures to lists: of `found` by name, of step times in `following` by their distance from the last save."""
    def __init__(self, arguments, programs, index, found, following):
        self.arguments, self.programs, self.run = arguments, programs, programs.work / f"run{index}"
        self.found, self.following = found, following

    def launch(self):
        return Launch(self.programs, self.run, self.arguments.ranks, settings_of(self.arguments),
                      self.programs.work / "log")

    def kill_everything(self, launch):
        kill([launch.pid] + sum(processes(self.run).values(), []))
        launch.wait()

    def measure_saves(self):
        launch = self.launch()
        if launch.wait() != 0:
            log = (self.programs.work / "log").read_text()
            sys.exit(f"ckpt_in_training: the run ended with {launch.returncode}: {log[-1000:]}")
        metrics = json_lines(self.run / "metrics.jsonl")
        every = self.arguments.every
        # A save is counted in the step after it. The first one is left out, as are the first steps:
        # they warm up.
        self.found["stalls"] += [m["ckpt_stall_ms"] for m in metrics if m["step"] % every == 1 and m["step"] > every + 1]
        for m in metrics:
            if m["step"] > every:
                self.following[m["step"] % every].append(m["step_ms"] - m["ckpt_stall_ms"])
        states = json_lines(self.run / STATE_LOG)
        staged = {s["step"]: seconds_of(s["time"]) for s in states if s["state"] == "STAGED"}
        self.found["committed"] += [1e3 * (seconds_of(s["time"]) - staged[s["step"]]) for s in states
                                    if s["state"] == "COMMITTED" and s["step"] > every]

    def measure_restart(self):
        """In seconds: launcher start to the end of the first new step, that step alone, verify. Returns the bytes of a rank."""
        shutil.rmtree(self.run)
        launch = self.launch()
        while not list(self.run.glob("checkpoints/step-*/MANIFEST.json")) or len(json_lines(self.run / "metrics.jsonl")) < self.arguments.every + 3:
            time.sleep(0.02)
            if launch.poll() is not None:
                sys.exit("ckpt_in_training: the run ended before it could be killed; use more --steps")
        self.kill_everything(launch)
        newest = sorted(path.parent for path in self.run.glob("checkpoints/step-*/MANIFEST.json"))[-1]
        step = int(newest.name.split("-")[1])
        started = time.time()
        launch = self.launch()
        metrics = self.run / "metrics.jsonl"
        while not (again := [m for m in json_lines(metrics) if m["attempt"] == 2]):
            time.sleep(0.01)
        first = again[0]
        assert first["step"] == step + 1, (first["step"], step)
        self.found["ready"].append(seconds_of(first["time"]) - started)
        self.found["first_step"].append(first["step_ms"] / 1e3)
        self.kill_everything(launch)
        start = time.time()
        status, report = self.programs.verify(newest)
        assert status == 0, report
        self.found["verify"].append(time.time() - start)
        bytes_of_rank = max(path.stat().st_size for path in newest.glob("*.safetensors"))
        shutil.rmtree(self.run)
        return bytes_of_rank


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    for name, default in (("ranks", 1), ("rounds", 3), ("steps", 90), ("every", 15), ("megabytes", 160)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dir")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckpt_in_training-", dir=arguments.dir) as name:
        programs = Programs(arguments.bin, name)
        programs.make_dataset()
        found, following = collections.defaultdict(list), collections.defaultdict(list)
        for index in range(arguments.rounds):
            measure = Round(arguments, programs, index, found, following)
            measure.measure_saves()
            bytes_of_rank = measure.measure_restart()
            found["copies"].append(memcpy_ms(bytes_of_rank))
        medians = {name: statistics.median(values) for name, values in found.items()}
        spreads = {name: spread(values) for name, values in found.items()}
        far = statistics.median(t for d, times in following.items() if d == 0 or d > arguments.every // 2 for t in times)
        print(json.dumps({"case": "stall_ms", "ranks": arguments.ranks, "bytes_of_rank": bytes_of_rank, **spreads["stalls"],
                          "memcpy_ms": spreads["copies"], "ratio": round(medians["stalls"] / medians["copies"], 3)}))
        print(json.dumps({"case": "following_steps", "far_step_ms": round(far, 2),
                          "ratio_by_distance": {d: round(statistics.median(following[d]) / far, 3) for d in sorted(following) if 0 < d <= 5}}))
        print(json.dumps({"case": "staged_to_committed_ms", **spreads["committed"], "in_steps": round(medians["committed"] / far, 2)}))
        print(json.dumps({"case": "restart_to_first_step_s", **spreads["ready"], "first_step_s": spreads["first_step"],
                          "verify_s": spreads["verify"]}))


if __name__ == "__main__":
    main()
