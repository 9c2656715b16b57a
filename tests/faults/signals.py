"""Runs that are told to stop in every phase: each stop must leave a checkpoint of where it was, a ledger line, 75, in time."""
import os
import pathlib
import re
import signal
import time

from disturbed_run import DisturbedRun, choose
from held_thread import HeldThread
from programs import STEPS, Failure, StateLog, await_gone, is_at_work, json_lines, kill, processes, takes_signals, trained_steps

PHASES = {"start-up": 3, "data wait": 3, "step": 3, "evaluation": 4, "save": 3, "last checkpoint": 2, "between restarts": 3}
RECEIVERS = {"launcher": 4, "one rank": 3, "all ranks": 1}


class StoppedRun(DisturbedRun):
    """Stopped until it is finished; adds (phase, seconds until the exit, budget) of each signal to `latencies`."""

    most_ranks = 3

    def __init__(self, programs, directory, random, tally, latencies):
        super().__init__(programs, directory, random, tally, 1000)
        self.latencies = latencies
        self.settings = ["checkpoint.every=%d" % random.randint(5, 20), "checkpoint.keep_last=1000", "eval.shards=%s" % (programs.work / "shards"),
                         "eval.batches=0", "eval.batch_size=2", "train.prefetch_steps=1", "eval.every=%d" % random.randint(8, 20)]

    def disturb(self):
        while not self.stop_once():
            pass

    def stop_once(self):
        """True once the run is finished."""
        phase, receiver = choose(self.random, PHASES), choose(self.random, RECEIVERS)
        number = self.random.choice([signal.SIGTERM, signal.SIGUSR1])
        is_double = self.random.random() < 0.25
        if phase == "between restarts":
            receiver = "launcher"
        self.log_offset = self.log.stat().st_size if self.log.exists() else 0
        self.start()
        self.held = None
        try:
            return self.stop_in(phase, receiver, number, is_double)
        finally:
            if self.held:
                self.held.release()

    def stop_in(self, phase, receiver, number, is_double):
        if not self.await_phase(phase, receiver):
            return self.is_finished()
        pids = self.receivers(receiver)
        where = trained_steps(self.run)
        sent = time.monotonic()
        if kill(pids, number) == 0:
            self.launch.await_end("a launch that nobody stopped")
            return self.is_finished()
        self.note("%s to %s in %s, second: %s, step %d" % (number.name, receiver, phase, is_double, where))
        if is_double:
            time.sleep(self.random.choice([0, self.random.uniform(0, 0.02), self.random.uniform(0, 0.2)]))
            kill(pids, signal.SIGTERM)
        waited = None
        if self.held:
            time.sleep(self.random.uniform(0.05, 0.4))
            waited = time.monotonic() - sent
            self.held.release()
        status = self.launch.await_end("a signal to %s in %s" % (receiver, phase))
        seconds = time.monotonic() - sent
        self.tally["signals: %s, %s%s" % (phase, receiver, ", twice" if is_double else "")] += 1
        self.judge(status, seconds, is_double and receiver == "launcher", phase)
        if waited:
            self.require_wait(where, waited)
        return status == 0

    def is_finished(self):
        status = self.launch.await_end("the end of the run")
        if status not in (0, 75):
            raise Failure("exit status %d" % status)
        return status == 0

    def await_phase(self, phase, receiver):
        """False if the launch ended before."""
        saves, first = StateLog(self.run), trained_steps(self.run)
        wanted = first + self.random.randint(1, 30)
        seconds = self.random.uniform(0, 1.2)
        started = time.monotonic()
        is_killed = False
        while self.launch.poll() is None:
            if not takes_signals(self.launch.pid):
                time.sleep(0.002)
                continue  # a signal to a program that has not begun simply ends it
            passed, steps, records = time.monotonic() - started, trained_steps(self.run), saves.new_records()
            if phase == "start-up" and passed > seconds and self.receivers(receiver):
                return True
            if phase == "step" and steps >= wanted:
                time.sleep(self.random.uniform(0, 0.02))
                return True
            if phase == "data wait" and steps >= wanted and self.hold_data():
                return True
            if phase == "evaluation" and steps > first and self.is_before_evaluation(steps):
                time.sleep(self.random.uniform(0, 0.01))
                return True
            if phase == "save" and any(r["state"] in ("COPYING", "STAGED", "WRITING", "DURABLE") for r in records):
                return True
            if phase == "last checkpoint" and (steps == STEPS or any(r["step"] == STEPS for r in records)):
                return True
            if phase == "between restarts" and not is_killed and steps >= wanted:
                is_killed = kill(processes(self.run).get("anyorder-train", [])[:1]) > 0
                died = time.monotonic()
                gap = self.random.uniform(0, 0.6)
            if is_killed and time.monotonic() - died > gap:
                return True
            time.sleep(0.002)
        return False

    def hold_data(self):
        """Holds rank 0's loader until the step waits for it; False if it is not there."""
        try:
            rank_0 = next(pid for pid in processes(self.run)["anyorder-train"] if self.is_rank_0(pid))
            self.held = HeldThread(rank_0, "batch-loader")
        except PermissionError:  # in some containers: then the signal comes in whatever the step does
            self.tally["data wait: not held, this machine forbids ptrace"] += 1
            return True
        except (KeyError, StopIteration, FileNotFoundError, ProcessLookupError):
            return False
        phase, since = self.phase(), time.monotonic()
        while time.monotonic() - since < 0.1:
            # What was loaded before is trained first. On a busy machine a step takes longer, but
            # does not sleep.
            if self.phase() != phase or is_at_work(rank_0):
                phase, since = self.phase(), time.monotonic()
            time.sleep(0.005)
        if re.fullmatch(rb"step \d+", phase):
            return True
        self.held.release()  # an evaluation, or the end
        return False

    def phase(self):
        """The phase that rank 0 says it is in, in its page (core/liveness/rank_page.h)."""
        for pid in processes(self.run).get("anyorder-train", []):
            try:
                if not self.is_rank_0(pid):
                    continue
                for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
                    if os.readlink(fd).startswith("/memfd:anyorder-rank"):
                        found = re.search(rb"(step \d+|evaluation after step \d+|last checkpoint)\0", fd.read_bytes())
                        return found.group(1) if found else b""
            except OSError:  # it ends
                pass
        return b""

    @staticmethod
    def is_rank_0(pid):
        variables = pathlib.Path("/proc/%d/environ" % pid).read_bytes().split(b"\0")
        return b"OMPI_COMM_WORLD_RANK=0" in variables

    def require_wait(self, step, seconds):
        """That the signal came while the step after `step` waited for its data, by what the run itself measured."""
        lines = [line for line in json_lines(self.run / "metrics.jsonl") if line["step"] == step + 1]
        if not lines or lines[-1]["data_wait_ms"] < 1000 * seconds:
            raise Failure("the signal did not meet a wait for data of %.0f ms: %s" % (1000 * seconds, lines[-1:]))

    def is_before_evaluation(self, steps):
        every = int(self.settings[-1].split("=")[1])
        return (steps + 1) % every == 0 or steps % every == every - 2

    def receivers(self, receiver):
        if receiver == "launcher":
            return [self.launch.pid]
        ranks = processes(self.run).get("anyorder-train", [])
        return ranks[:] if receiver == "all ranks" else ranks[-1:]

    def judge(self, status, seconds, may_leave_staged, phase):
        where = trained_steps(self.run)
        if status not in (0, 75):
            raise Failure("exit status %d after a signal in %s" % (status, phase))
        exits = [r for r in json_lines(self.run / "ledger.jsonl") if r["event"] == "exit"]
        if not exits or exits[-1]["exit_status"] != status:
            raise Failure("no ledger line says that the launch ended with %d: %s" % (status, exits[-1:]))
        printed = self.log.read_bytes()[self.log_offset:].decode()
        budget = re.findall(r"a stop needs up to ([0-9.]+) s", printed)
        self.latencies.append((phase, seconds, float(budget[-1]) if budget else None))
        if budget and seconds > float(budget[-1]):
            raise Failure("a stop in %s took %.2f s, but %s s were announced" % (phase, seconds, budget[-1]))
        if status == 0 or "step" not in printed or "stopping" not in printed and phase == "start-up":
            return
        if phase == "between restarts":
            return  # what the killed rank had done since the last checkpoint is lost, and will be done again
        if may_leave_staged:
            await_gone(self.run, ("anyorder-ckptd",))
        if where and not (self.run / "checkpoints" / ("step-%09d" % where)).exists():
            raise Failure("no checkpoint of step %d, where a signal in %s stopped it" % (where, phase))
