"""Writes run directories as a trainer leaves them, with what becomes of runs: crashes, lost nodes, stops, skipped steps. For tests of
`anyorder report` and `anyorder status`, which then need neither training nor a cluster."""
import json
import math
import random
from datetime import datetime, timedelta, timezone

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Run:
    """A run whose clock the test turns: `now` is seconds after the origin."""

    def __init__(self, directory, steps, seed=1, config=""):
        self.directory, self.steps, self.random = directory, steps, random.Random(seed)
        self.origin = datetime(2026, 3, 4, 22, 10, tzinfo=timezone.utc)
        self.now = 0.0
        directory.mkdir(parents=True)
        (directory / "config.toml").write_text(f"[train]\nsteps = {steps}\nglobal_batch_size = 8\nmicro_batch_size = 1\n[data]\nshards = \"gone\"\n{config}")
        self.lines = {"metrics.jsonl": [], "metrics.redone.jsonl": []}
        self.records = []
        self.attempt = 0

    def time(self):
        return (self.origin + timedelta(seconds=self.now)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def record(self, event, **members):
        text = json.dumps({"event": event, "time": self.time(), **members}, separators=(",", ":"))[:-1]
        self.records.append(f'{text},"crc32c":"{crc32c(text.encode()):08x}"}}\n')

    def start(self, step, ranks, prepare=3.0, **members):
        self.attempt += 1
        self.record("start", run_id="3f2a90c1d2e4b567", attempt=self.attempt, ranks=ranks, **members)
        self.now += prepare
        self.record("train", attempt=self.attempt, step=step, config_digest="c0ffee", dataset_digest="da7a")

    def train(self, first, last, seconds=0.5, every=50, evaluate=0, file="metrics.jsonl", **members):
        """Steps first to last; a commit after each `every`."""
        for step in range(first, last + 1):
            stall = 60 + 200 * self.random.random() if step % every == 1 and step > 1 else 0.0
            took = seconds * self.random.uniform(0.93, 1.1) + stall / 1e3
            self.now += took
            fraction = step / self.steps
            loss = 3.1 + 5.2 * math.exp(-9 * fraction) + self.random.gauss(0, 0.12)
            line = {"step": step, "loss": loss, "lr": 3e-4 * min(1, 12 * fraction) * (1 - 0.9 * fraction),
                    "grad_norm": math.exp(self.random.gauss(0.1, 0.25)) * (1 + 4 * math.exp(-20 * fraction)),
                    "tokens_per_second": 8 * 512 / took, "data_wait_ms": 8.0, "ckpt_stall_ms": stall, "step_ms": 1e3 * took,
                    "compute_ms": 900 * took, "reduce_ms": 60 * took, "optimizer_ms": 20 * took, "tokens": 8 * 512,
                    "attempt": self.attempt, "peak_rss_bytes": 3 << 30, "time": self.time(), **members}
            if evaluate and step % evaluate == 0:
                self.now += 2
                line.update(eval_loss=loss + 0.15, eval_standard_error=0.02, eval_ms=2000.0, time=self.time())
            self.lines[file].append(json.dumps(line, separators=(",", ":")) + "\n")
            if step % every == 0:
                self.record("commit", attempt=self.attempt, step=step, generation=1)

    def end(self, status, step=None, detail=""):
        if step is not None:
            self.record("stop", attempt=self.attempt, step=step, exit_status=status, **({"detail": detail} if detail else {}))
        self.now += 0.4
        self.record("exit", attempt=self.attempt, exit_status=status)

    def write(self):
        for file, lines in self.lines.items():
            if lines:
                (self.directory / file).write_text("".join(lines))
        (self.directory / "ledger.jsonl").write_text("".join(self.records))
        return self.directory


def eventful_run(directory, steps=1200, seed=1):
    """Four starts: a lost node, a time limit with a wait in the queue, a skipped step, the end."""
    run = Run(directory, steps, seed)
    run.record("created", run_id="3f2a90c1d2e4b567", config_digest="c0ffee")
    nodes = ["n1", "n2", "n3", "n4"]
    third = steps // 3
    run.start(0, 8, nodes=nodes, slurm_job=4711, slurm_restart=0)
    run.train(1, third, evaluate=third // 4)
    run.train(third + 1, third + 37, file="metrics.redone.jsonl")
    run.now += 11
    run.end(137)
    run.start(third, 6, nodes=["n1", "n2", "n4"], slurm_job=4711, slurm_restart=0)
    run.train(third + 1, 2 * third, seconds=0.62, evaluate=third // 4)
    run.end(75, 2 * third, "stopped by a signal")
    run.now += 260
    run.start(2 * third, 8, nodes=["n1", "n2", "n5", "n6"], slurm_job=4711, slurm_restart=1)
    run.train(2 * third + 1, 2 * third + 59, evaluate=third // 4)
    run.train(2 * third + 60, 2 * third + 60, skipped=True, loss=None)
    run.train(2 * third + 61, 2 * third + 100, evaluate=third // 4)
    run.record("skipped", attempt=run.attempt, step=2 * third + 60, lanes=8, rank=3, reason="nonfinite",
               detail="rank 3: loss of lanes 2, 5 is <nan> & \"bad\"")
    run.end(74, 2 * third + 100, "write 'checkpoints/<step>': No space left on device & more")
    run.start(2 * third + 100, 8, nodes=["n1", "n2", "n5", "n6"], slurm_job=4711, slurm_restart=1)
    run.train(2 * third + 101, steps, evaluate=third // 4)
    run.end(0, steps, "finished")
    return run.write()
