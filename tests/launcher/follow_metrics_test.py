#!/usr/bin/env python3
"""launcher/follow_metrics.py with stand-ins for wandb and mlflow that write down what they are asked: what is sent once, twice or not at
all, whatever happens to the run and to the follower. The packages themselves: tests/parity/follow_metrics_parity.py."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PATIENCE_S = 400  # only what never comes is waited for so long
FOLLOWER = Path(__file__).resolve().parents[2] / "launcher/follow_metrics.py"
NOTE = """
import json, os
def note(**what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(what) + "\\n")
"""
WANDB = NOTE + """
class Run:
    summary = {}
    def define_metric(self, name, step_metric=None): pass
    def log(self, row): note(call="log", row=row)
    def finish(self, exit_code): note(call="finish", exit_code=exit_code, **self.summary)
def init(**options):
    note(call="init", **options)
    return Run()
"""
MLFLOW = NOTE + """
import types
class MlflowClient:
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return "7"
    def create_run(self, experiment, run_name, tags):
        note(call="create", name=run_name, tags=tags)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))
    def update_run(self, run, status): note(call="update", run=run, status=status)
    def log_batch(self, run, metrics=(), params=()):
        note(call="batch", metrics=[list(metric) for metric in metrics], params=len(params))
    def set_tag(self, run, key, value): pass
    def set_terminated(self, run, status): note(call="end", run=run, status=status)
"""
ENTITIES = "import collections\nMetric = collections.namedtuple('Metric', 'key value time step')\nParam = collections.namedtuple('Param', 'key value')\n"


class FollowMetricsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.run_dir, self.calls_file = self.folder / "run", self.folder / "calls"
        self.run_dir.mkdir()
        (self.folder / "wandb.py").write_text(WANDB)
        (self.folder / "mlflow").mkdir()
        (self.folder / "mlflow/__init__.py").write_text(MLFLOW)
        (self.folder / "mlflow/entities.py").write_text(ENTITIES)
        (self.run_dir / "config.toml").write_text("[train]\nsteps = 9\n")
        self.record("created", run_id="r1")

    def record(self, event, file="ledger.jsonl", **members):
        with open(self.run_dir / file, "a") as file:
            file.write(json.dumps({"event": event, **members}, separators=(",", ":")) + "\n")

    def line(self, step, attempt=1, **members):
        return json.dumps({"step": step, "loss": 1 / step, "lr": 0.5, "attempt": attempt, "samples": "ab", "skipped": False,
                           "time": "2026-03-04T22:10:00.250Z", **members}) + "\n"

    def append(self, *lines):
        with open(self.run_dir / "metrics.jsonl", "a") as file:
            file.write("".join(lines))

    def resume(self, step):
        """As a start does that resumes behind `step`."""
        kept, lost = [], []
        for line in (self.run_dir / "metrics.jsonl").read_text().splitlines(True):
            (kept if json.loads(line)["step"] <= step else lost).append(line)
        with open(self.run_dir / "metrics.redone.jsonl", "a") as file:
            file.write("".join(lost))
        (self.run_dir / "new").write_text("".join(kept))
        (self.run_dir / "new").replace(self.run_dir / "metrics.jsonl")

    def command(self, *options, to="--wandb"):
        return [sys.executable, str(FOLLOWER), str(self.run_dir), to, "--poll", "0.02", *options]

    def environment(self):
        return {**os.environ, "PYTHONPATH": str(self.folder), "CALLS": str(self.calls_file), "PYTHONDONTWRITEBYTECODE": "1"}

    def once(self, to="--wandb"):
        done = subprocess.run(self.command("--once", to=to), capture_output=True, text=True, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def calls(self):
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def rows(self):
        return [(call["row"]["step"], call["row"].get("loss")) for call in self.calls() if call["call"] == "log"]

    def await_calls(self, call, count):
        deadline = time.monotonic() + PATIENCE_S
        while sum(made["call"] == call for made in self.calls()) < count:
            self.assertLess(time.monotonic(), deadline, self.calls())
            time.sleep(0.01)

    def test_lines_are_sent_once_whoever_starts_it_again(self):
        self.append(self.line(1), self.line(2, loss=None, eval_loss=3.5), '{"step":3,"lo')
        self.assertIn("running; sent up to step 2 as r1", self.once())
        self.assertIn("sent up to step 2", self.once())
        self.append('ss":0.25,"attempt":1}\n')
        self.once()
        # No loss is a gap; names, digests and the start are no figures.
        self.assertEqual(self.rows(), [(1, 1.0), (2, None), (3, 0.25)])
        self.assertEqual(self.calls()[2]["row"], {"step": 2, "lr": 0.5, "skipped": 0, "eval_loss": 3.5})
        inits = [call for call in self.calls() if call["call"] == "init"]
        self.assertEqual({(init["id"], init["resume"], init["name"]) for init in inits}, {("r1", "allow", "run")})
        self.assertEqual(inits[0]["config"], {"train.steps": 9})

    def test_steps_that_come_again_are_sent_if_they_differ(self):
        self.append(*map(self.line, range(1, 6)))
        self.once()
        self.resume(2)
        self.append(self.line(3, 2), self.line(4, 2))
        self.once()
        self.append(self.line(5, 2, loss=0.9), self.line(6, 2))
        self.once()
        self.assertEqual([step for step, _ in self.rows()], [1, 2, 3, 4, 5, 5, 6])
        # A second crash at once, behind a step that the follower had not seen yet.
        self.append(self.line(7, 2))
        self.resume(5)
        self.append(self.line(6, 3), self.line(7, 3))
        self.once()
        self.assertEqual(self.rows()[7:], [(7, 1 / 7)])

    def test_it_follows_restarts_to_the_end(self):
        self.record("start", attempt=1)
        follower = subprocess.Popen(self.command("--patience", str(PATIENCE_S)), stdout=subprocess.PIPE, text=True, env=self.environment())
        self.addCleanup(follower.stdout.close)
        self.append(self.line(1), self.line(2))
        self.await_calls("log", 2)
        self.record("exit", attempt=1, exit_status=137)
        self.resume(1)
        self.append(self.line(2, 2), self.line(3, 2))
        self.record("start", attempt=2)
        self.await_calls("log", 3)
        self.append(self.line(4, 2))
        self.record("stop", attempt=2, step=4, exit_status=0)
        self.record("exit", file="ledger.launcher.jsonl", attempt=2, exit_status=0)
        self.assertIn("finished; sent up to step 4", follower.communicate(timeout=PATIENCE_S)[0])
        self.assertEqual([step for step, _ in self.rows()], [1, 2, 3, 4])
        self.assertEqual(self.calls()[-1], {"call": "finish", "exit_code": 0, "state": "finished"})

    def test_each_end_is_told(self):
        for status, reason, state, code in ((75, "", "stopped", 0), (93, "diverged", "diverged", 93), (74, "", "failed", 74)):
            with self.subTest(state):
                self.record("start", attempt=1)
                self.record("stop", attempt=1, exit_status=status, may_restart=0, **({"reason": reason} if reason else {}))
                self.record("exit", attempt=1, exit_status=status)
                done = subprocess.run(self.command(), capture_output=True, text=True, env=self.environment(), timeout=PATIENCE_S)
                self.assertIn(state, done.stdout)
                self.assertEqual(self.calls()[-1], {"call": "finish", "exit_code": code, "state": state})
        # A crash, and no start after it. The launcher was on another machine than rank 0.
        self.record("start", file="ledger.launcher.jsonl", attempt=2)
        self.record("exit", file="ledger.launcher.jsonl", attempt=2, exit_status=139)
        done = subprocess.run(self.command("--patience", "0"), capture_output=True, text=True, env=self.environment(), timeout=PATIENCE_S)
        self.assertIn("failed", done.stdout)

    def test_a_signal_ends_it_and_nothing_is_lost(self):
        self.append(self.line(1))
        for start, signal_number in enumerate((signal.SIGTERM, signal.SIGINT), 1):
            follower = subprocess.Popen(self.command(), stdout=subprocess.PIPE, text=True, env=self.environment())
            self.addCleanup(follower.stdout.close)
            self.await_calls("init", start)
            follower.send_signal(signal_number)
            follower.communicate(timeout=PATIENCE_S)
            self.assertEqual(follower.returncode, 0)
        self.append(self.line(2))
        self.once()
        self.assertEqual([step for step, _ in self.rows()], [1, 2])

    def test_mlflow_has_one_run_and_batches(self):
        self.append(*(self.line(step, **{f"m{i}": i for i in range(30)}) for step in range(1, 41)))
        self.assertIn("as m1", self.once("--mlflow"))
        self.record("start", attempt=1)
        self.record("exit", attempt=1, exit_status=75)
        self.append(self.line(41))
        self.once("--mlflow")
        calls = self.calls()
        self.assertEqual([call["call"] for call in calls if call["call"] != "batch"], ["create", "update", "end"])
        self.assertEqual(calls[-1], {"call": "end", "run": "m1", "status": "KILLED"})
        metrics = [metric for call in calls if call["call"] == "batch" for metric in call["metrics"]]
        self.assertEqual(len(metrics), 40 * 33 + 3)
        self.assertLessEqual(max(len(call.get("metrics", ())) for call in calls), 1000)
        self.assertIn(["loss", 0.5, 1772662200250, 2], metrics)

    def test_what_is_missing_is_said(self):
        (self.folder / "wandb.py").write_text("raise ImportError('no')")
        self.append(self.line(1))
        for command, words in ((self.command(), "pip install wandb"),
                               ([sys.executable, str(FOLLOWER), str(self.folder / "none"), "--wandb"], "there is no directory"),
                               ([sys.executable, str(FOLLOWER), str(self.run_dir)], "--wandb")):
            done = subprocess.run(command, capture_output=True, text=True, env=self.environment())
            self.assertEqual(done.returncode, 64, done)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
