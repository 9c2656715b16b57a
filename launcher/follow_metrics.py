#!/usr/bin/env python3
"""Follows the metrics of a run, and sends them to Weights & Biases or MLflow while it trains.

   follow_metrics.py RUN (--wandb | --mlflow) [--project NAME] [--name NAME] [--once]

Training needs neither: this reads RUN/metrics.jsonl, RUN/ledger.jsonl, RUN/ledger.launcher.jsonl and RUN/config.toml, and may be started as soon as RUN is there or
later, stopped at any time (Ctrl-C) and started again: RUN/.follow-wandb.json or RUN/.follow-mlflow.json knows what was sent, so that a
line is sent once (a line that was being sent when this was killed with -9 may be sent twice). The run's ledger names the run there, so all
starts appear as one run, whichever machine or user sends them.

The packages' own variables choose the destination: WANDB_MODE=offline, WANDB_DIR, WANDB_API_KEY; MLFLOW_TRACKING_URI. Each number of a line is sent by its name, with the step; a loss that is not finite is left out, which is a gap.
Steps that a crash lost and a later start did again are sent again only where their numbers differ.

It ends when the run has finished, diverged, stopped on request or failed for good. After a crash it waits --patience seconds for another
start. Under Slurm a requeue is a stop: start it again, or in the batch script; it goes on with the same run there. If the launcher was
killed, it waits until Ctrl-C; --once sends what is there and ends. Without the package it says so and ends with 64.
"""
import argparse
import json
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

NOT_SENT = {"step", "attempt"}
SAME_RESULT = ("loss", "grad_norm", "lr")  # of a step that was trained again, if nothing changed
FINAL = {0, 64, 65, 75, 93}                # exits that the launcher does not follow with another start


def fail(message):
    print(f"follow_metrics.py: {message}", file=sys.stderr)
    sys.exit(64)


def objects(text):
    """The JSON objects of whole lines. What is torn is left out, and so is a fragment before a ledger's record."""
    for line in text.split("\n"):
        begin = max(line.rfind('{"event":'), 0)
        try:
            found = json.loads(line[begin:])
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def numbers(line):
    """What is sent of a line, by name."""
    return {key: float(value) for key, value in line.items() if key not in NOT_SENT and isinstance(value, (bool, int, float))}


def settings(run):
    """section.key of config.toml with its value."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        return {}
    return {f"{section}.{key}": value for section, keys in tomllib.loads((run / "config.toml").read_text()).items()
            for key, value in keys.items()}


class Metrics:
    """RUN/metrics.jsonl, which grows, and which a start that resumes replaces by a shorter one."""

    def __init__(self, run):
        self.path, self.redone_path = run / "metrics.jsonl", run / "metrics.redone.jsonl"
        self.inode, self.offset = None, 0

    def read(self):
        """The lines that came since the last call; all, if the file is another by now."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.inode, self.offset = status.st_ino, 0
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[:text.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [line for line in objects(whole.decode(errors="replace")) if "step" in line]

    def lost(self):
        """By step, the newest line that a later start did again."""
        try:
            return {line["step"]: line for line in objects(self.redone_path.read_text(errors="replace")) if "step" in line}
        except FileNotFoundError:
            return {}


class Sent:
    """What was sent: the start and step of the last line, the highest step of all, and the name of the run there."""

    def __init__(self, path):
        self.path = path
        self.state = {"run": "", "attempt": 0, "step": 0, "highest": 0}
        if path.exists():
            self.state.update(json.loads(path.read_text()))

    def save(self, **state):
        self.state.update(state)
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.state) + "\n")
        new.replace(self.path)

    def unsent(self, lines, lost):
        """Those of `lines` that are new, and those of them that are to be sent. `lost` is called if there are steps that were sent
        before."""
        fresh = [line for line in lines
                 if (line.get("attempt", 0), line["step"]) > (self.state["attempt"], self.state["step"])]
        if not any(line["step"] <= self.state["highest"] for line in fresh):
            return fresh, fresh
        before = lost()

        def is_known(line):
            old = before.get(line["step"]) if line["step"] <= self.state["highest"] else None
            return old is not None and all(line.get(key) == old.get(key) for key in SAME_RESULT)
        return fresh, [line for line in fresh if not is_known(line)]


class Wandb:
    """One row of history a line. The step is a column and the axis of all others, not W&B's own step, which may not go back."""

    def __init__(self, options, run_id, known, config):
        try:
            import wandb
        except ImportError:
            fail("--wandb needs the Python package wandb: pip install wandb")
        self.id = known or run_id
        self.run = wandb.init(project=options.project, name=options.name, id=self.id, resume="allow", config=config)
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def send(self, lines):
        for line in lines:
            self.run.log({"step": line["step"], **numbers(line)})

    def end(self, state, status):
        self.run.summary["state"] = state
        self.run.finish(exit_code=0 if state in ("finished", "stopped") else status)

    def leave(self):
        self.run.finish(exit_code=0)


class Mlflow:
    STATUS = {"finished": "FINISHED", "stopped": "KILLED"}
    MOST = 1000  # metrics of a request

    def __init__(self, options, run_id, known, config):
        try:
            import mlflow
            from mlflow.entities import Metric, Param
        except ImportError:
            fail("--mlflow needs the Python package mlflow, or mlflow-skinny: pip install mlflow-skinny")
        self.metric = Metric
        self.client = mlflow.MlflowClient()
        if known:
            self.id = known
            self.client.update_run(self.id, status="RUNNING")
            return
        experiment = self.client.get_experiment_by_name(options.project)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(options.project)
        self.id = self.client.create_run(experiment_id, run_name=options.name, tags={"anyorder.run_id": run_id}).info.run_id
        params = [Param(key, str(value)) for key, value in config.items() if str(value)]
        for begin in range(0, len(params), 100):
            self.client.log_batch(self.id, params=params[begin:begin + 100])

    def send(self, lines):
        metrics = [self.metric(key, value, milliseconds(line), line["step"]) for line in lines for key, value in numbers(line).items()]
        for begin in range(0, len(metrics), self.MOST):
            self.client.log_batch(self.id, metrics=metrics[begin:begin + self.MOST])

    def end(self, state, status):
        self.client.set_tag(self.id, "anyorder.state", state)
        self.client.set_terminated(self.id, self.STATUS.get(state, "FAILED"))

    def leave(self):
        pass  # it stays RUNNING there, as the run may be


def milliseconds(line):
    """When the line was written, since 1970."""
    try:
        return int(datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp() * 1000)
    except (KeyError, ValueError):
        return int(time.time() * 1000)


class Ledger:
    def __init__(self, run):
        self.paths = [run / "ledger.jsonl", run / "ledger.launcher.jsonl"]

    def records(self):
        """Of rank 0 and of a launcher on another machine; a start's `start`, `stop` and `exit` in this order."""
        found = [record for path in self.paths if path.exists() for record in objects(path.read_text(errors="replace"))]
        order = {"start": 0, "exit": 2}
        return sorted(found, key=lambda record: (record.get("attempt", -1), order.get(record.get("event"), 1)))

    def run_id(self):
        return next((record["run_id"] for record in self.records() if record.get("event") == "created"), "")

    def end(self):
        """(state, exit status, whether another start may follow) once the last start is over, else None."""
        last = {}  # record of each event since the last start
        for record in self.records():
            last = {} if record["event"] == "start" else {**last, record["event"]: record}
        if "exit" not in last:
            return None
        stop, status = last.get("stop", {}), last["exit"]["exit_status"]
        state = "diverged" if stop.get("reason") == "diverged" else {0: "finished", 75: "stopped"}.get(status, "failed")
        return state, status, status not in FINAL and stop.get("may_restart") != 0


class Follower:
    def __init__(self, options):
        self.options = options
        self.ledger, self.metrics = Ledger(options.run), Metrics(options.run)
        self.sent = Sent(options.run / f".follow-{options.to}.json")
        self.sink = None
        self.is_asleep = self.is_asked_to_stop = False

    def stop(self, *_):
        """A first signal waits until what was sent is recorded; a second one does not."""
        if self.is_asleep or self.is_asked_to_stop:
            raise KeyboardInterrupt
        self.is_asked_to_stop = True

    def sleep(self, seconds):
        self.is_asleep = True
        if not self.is_asked_to_stop:
            time.sleep(seconds)
        self.is_asleep = False
        if self.is_asked_to_stop:
            raise KeyboardInterrupt

    def open(self):
        """Whether the run has begun: before, it has no name."""
        if self.sink is None and self.ledger.run_id() and (self.options.run / "config.toml").is_file():
            kind = {"wandb": Wandb, "mlflow": Mlflow}[self.options.to]
            self.sink = kind(self.options, self.ledger.run_id(), self.sent.state["run"], settings(self.options.run))
            self.sent.save(run=self.sink.id)
        return self.sink is not None

    def pass_on(self):
        fresh, unsent = self.sent.unsent(self.metrics.read(), self.metrics.lost)
        if not fresh:
            return False
        self.sink.send(unsent)
        last = fresh[-1]
        self.sent.save(attempt=last.get("attempt", 0), step=last["step"],
                       highest=max(self.sent.state["highest"], *(line["step"] for line in fresh)))
        return True

    def follow(self):
        over_since = None
        while True:
            # In this order: a run that is over writes no more lines.
            end = self.ledger.end() if self.open() else None
            news = self.open() and self.pass_on()
            if news or end is None:
                over_since = None
            elif over_since is None:
                over_since = time.monotonic()
            waited = 0 if over_since is None else time.monotonic() - over_since
            if end and not news and (not end[2] or self.options.once or waited >= self.options.patience):
                self.sink.end(end[0], end[1])
                return end[0]
            if self.options.once and not news:
                if self.sink is not None:
                    self.sink.leave()
                return "running"
            self.sleep(0 if news else self.options.poll)


def parse(words):
    parser = argparse.ArgumentParser(description="Sends the metrics of a run to Weights & Biases or MLflow while it trains.")
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--wandb", dest="to", action="store_const", const="wandb", help="to Weights & Biases")
    to.add_argument("--mlflow", dest="to", action="store_const", const="mlflow", help="to MLflow")
    parser.add_argument("--project", default="anyorder", help="W&B's project or MLflow's experiment (default: anyorder)")
    parser.add_argument("--name", help="run name (default: name of the run directory)")
    parser.add_argument("--once", action="store_true", help="send what is there and end")
    parser.add_argument("--poll", type=float, default=5, metavar="SECONDS", help="seconds between reads of the run's files (default: 5)")
    parser.add_argument("--patience", type=float, default=120, metavar="SECONDS",
                        help="seconds to wait for another start after a crash (default: 120)")
    parser.error = fail
    options = parser.parse_args(words)
    if not options.run.is_dir():
        fail(f"there is no directory '{options.run}'; 'anyorder launch --run-dir DIR' starts a run")
    options.name = options.name or options.run.resolve().name
    return options


def main(words):
    follower = Follower(parse(words))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, follower.stop)
    try:
        state = follower.follow()
    except KeyboardInterrupt:
        if follower.sink is not None:
            follower.sink.leave()
        state = "not followed any more"
    print(f"follow_metrics.py: {state}; sent up to step {follower.sent.state['highest']} as {follower.sent.state['run'] or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
