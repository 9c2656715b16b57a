#!/usr/bin/env python3
"""How long a Slurm job needs from `sbatch` to its first step, when it is submitted, requeued and submitted again with other nodes.

Usage: slurm_start.py BIN_DIR DATASET [--repeats 5] [--nodes 2] [--ranks 2] [--mpi auto|srun|mpirun]

On a private cluster (tests/slurm/cluster.sh) with a model of milliseconds, so that what is left is the cost of starting. Seconds since
the event (`anyorder submit` called, `scontrol requeue` called), one JSON line for each start, then a line with medians and extremes:
  queued    submit returned, or Slurm shows the job as pending (the run has saved and ended)
  script    first line of the batch script
  launch    the launcher has the lease and has written the start into the ledger
  service   the checkpoint services of all nodes listen
  ranks     rank 0 has found the others (MPI_Init), the service, the dataset and the checkpoint, and says so
  first     the first step is over, its line is in metrics.jsonl
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STAGES = ["queued", "script", "launch", "service", "ranks", "first"]


def seconds(text):
    """Of an ISO time as in our logs."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Cluster:
    def __init__(self):
        self.lab = tempfile.mkdtemp(prefix="anyorder-slurm.")
        self.environment = dict(os.environ, ANYORDER_SLURM_LAB=self.lab, ANYORDER_SLURM_OWNER=str(os.getpid()))
        self.script = str(HERE.parent / "slurm" / "cluster.sh")

    def __enter__(self):
        if subprocess.run([self.script, "up"], env=self.environment).returncode != 0:
            sys.exit(77)
        return self

    def __exit__(self, *_):
        subprocess.run([self.script, "down"], env=self.environment)
        shutil.rmtree(self.lab, ignore_errors=True)

    def run(self, *words):
        done = subprocess.run([self.script, "x", *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("status %d of %s: %s" % (done.returncode, " ".join(words), done.stderr))
        return done.stdout

    def state(self, job):
        return re.search(r"JobState=(\S+)", self.run("scontrol", "-o", "show", "job", job)).group(1)


def await_true(what, condition, limit=90, log=lambda: ""):
    deadline = time.time() + limit
    while not condition():
        if time.time() > deadline:
            sys.exit("waited %d s in vain for %s\n%s" % (limit, what, log()))
        time.sleep(0.02)


class Run:
    def __init__(self, cluster, options, index):
        self.cluster, self.options = cluster, options
        self.path = pathlib.Path(cluster.lab) / "shared" / ("run%d" % index)
        (self.path / "slurm").mkdir(parents=True)
        (self.path / "slurm" / "environment.sh").write_text('date +%%s.%%N >>"%s/slurm/script-times"\n' % self.path)

    def lines(self, name):
        path = self.path / name
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def log(self):
        return "\n".join(line for path in self.path.glob("slurm/job-*.log") for line in path.read_text().splitlines()[-10:])

    def submit(self, nodes):
        """Returns (time of the call, seconds until it returned)."""
        begun = time.time()
        config = HERE.parent / "slurm" / "tiny.toml"
        output = self.cluster.run(
            str(self.options.bin / "anyorder"), "submit", "--config", str(config), "--run-dir", str(self.path), "--nodes", str(nodes),
            "--ranks-per-node", str(self.options.ranks), "--mpi", self.options.mpi, "--set", "train.steps=1000000",
            "--set", "data.shards=%s" % self.options.dataset)
        self.job = output.split()[-1]
        return begun, time.time() - begun

    def started(self, restart):
        """The ledger's record of the job's first start after so many requeues."""
        for line in self.lines("ledger.jsonl"):
            record = json.loads(line)
            if record["event"] == "start" and (record["slurm_job"], record["slurm_restart"]) == (int(self.job), restart):
                return record
        return None

    def first_line(self, attempt):
        """Of metrics.jsonl by this start, without reading what is before it again and again."""
        lines = self.lines("metrics.jsonl")
        if not lines or '"attempt":%d,' % attempt not in lines[-1]:
            return None
        return next(json.loads(line) for line in lines if '"attempt":%d,' % attempt in line)

    def measure(self, event, begun, queued, restart, nodes):
        await_true("a start", lambda: self.started(restart), log=self.log)
        start = self.started(restart)
        await_true("its first step", lambda: self.first_line(start["attempt"]), log=self.log)
        first = self.first_line(start["attempt"])

        def last(name, pattern):
            times = [seconds(line.split("Z")[0] + "Z") for line in self.lines(name) if re.search(pattern, line)]
            return max(t for t in times if t < seconds(first["time"]))

        times = {"queued": begun + queued, "script": float(self.lines("slurm/script-times")[-1]), "launch": seconds(start["time"]),
                 "service": last("ckptd.log", r"\] serving "), "ranks": last("train.log", r"rank 0\] \d+ ranks, "), "first": seconds(first["time"])}
        row = {"event": event, "nodes": nodes, "world_size": start["ranks"], "from_step": first["step"] - 1}
        row.update({stage: round(times[stage] - begun, 3) for stage in STAGES})
        print(json.dumps(row), flush=True)
        return row

    def await_commit(self):
        await_true("a commit", lambda: any((self.path / "checkpoints").glob("step-*[0-9]")))

    def requeue(self):
        begun = time.time()
        self.cluster.run("scontrol", "requeue", self.job)
        await_true("the job to be pending", lambda: self.cluster.state(self.job) == "PENDING")
        return begun, time.time() - begun

    def cancel(self):
        self.cluster.run("scancel", self.job)
        await_true("the job's end", lambda: self.cluster.state(self.job) == "CANCELLED")
        await_true("the end of its steps", lambda: not self.cluster.run("squeue", "-h", "-s", "-o", "%i").strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("dataset", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="on each node")
    parser.add_argument("--mpi", default="auto")
    options = parser.parse_args()
    rows = []
    with Cluster() as cluster:
        for index in range(options.repeats):
            run = Run(cluster, options, index)
            rows.append(run.measure("submit", *run.submit(options.nodes), 0, options.nodes))
            run.await_commit()
            rows.append(run.measure("requeue", *run.requeue(), 1, options.nodes))
            run.cancel()
            rows.append(run.measure("other nodes", *run.submit(options.nodes + 1), 0, options.nodes + 1))
            run.cancel()
            shutil.rmtree(run.path)
    for event in ["submit", "requeue", "other nodes"]:
        of_event = [row for row in rows if row["event"] == event]
        summary = {"event": event, "count": len(of_event)}
        for stage in STAGES:
            values = [row[stage] for row in of_event]
            summary[stage] = {"median": round(statistics.median(values), 3), "least": min(values), "most": max(values)}
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
