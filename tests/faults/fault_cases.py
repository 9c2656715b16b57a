"""One fault that is made on purpose in a real run, and what must become of it (README.md).
fault_cases.py BIN_DIR WORK_DIR SHIM CASE; `prepare` first makes the dataset that all cases share."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from programs import Failure, Programs, json_lines, kill, processes, trained_steps

SKIPPED = 77
# So many that no machine finishes before it is disturbed.
ENDLESS = ["train.steps=100000000", "checkpoint.every=50"]
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def require(condition, what):
    if not condition:
        raise Failure(what)


def await_true(condition, what, seconds=60):
    """For what takes a moment; the limit is for machines that do something else meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        require(time.monotonic() < deadline, "not within %d s: %s" % (seconds, what))
        time.sleep(0.01)


class Bench:
    """A place for one case: its runs, its logs, and the shim's rules."""

    def __init__(self, programs, directory, shim):
        self.programs, self.directory, self.shim = programs, directory, shim
        self.run, self.log = directory / "run", directory / "log"
        self.launched = []
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)

    def environment(self, rules, clock=None):
        added = {}
        if rules:
            added["ANYORDER_FAULTS"] = ";".join(",".join("%s=%s" % pair for pair in rule.items()) for rule in rules)
        if clock:
            added["ANYORDER_CLOCK"] = str(clock)
        return {**os.environ, **added, **({"LD_PRELOAD": str(self.shim)} if added else {})}

    def launch(self, settings=(), ranks=1, rules=(), clock=None, before=(), more=(), log=None, **popen):
        """`before`: words in front of the command; `more`: at its end."""
        command = [*before, *self.programs.launch_command(self.run, ranks, settings), *more]
        log = log or self.log
        with open(log, "ab") as out:
            popen = {"stdout": out, "stderr": out, "start_new_session": True, **popen}
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=self.environment(rules, clock), **popen)
        self.launched.append(started)
        return started

    def anyorder(self, *words):
        return subprocess.run([self.programs.bin / "anyorder", *map(str, words)], capture_output=True, text=True)

    def ledger(self, event=None):
        return [r for r in json_lines(self.run / "ledger.jsonl") if event in (None, r["event"])]

    def await_commits(self, number=1):
        await_true(lambda: len(self.ledger("commit")) >= number, "%d commits; log: %s" % (number, self.text()))

    def await_end(self, launch, status):
        try:
            ended = launch.wait(90)
        except subprocess.TimeoutExpired:
            raise Failure("the launch does not end; log: %s" % self.text())
        require(ended == status, "the launch ended with %d, not %d: %s" % (ended, status, self.text()))

    def stop(self, launch):
        launch.send_signal(signal.SIGTERM)
        self.await_end(launch, 75)

    def text(self, log=None):
        path = log or self.log
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def require_audit(self):
        done = self.anyorder("inspect", self.run, "--ledger")
        require(done.returncode == 0, "inspect --ledger ends with %d: %s %s" % (done.returncode, done.stdout[-1500:], done.stderr))

    def close(self):
        for launch in self.launched:
            if launch.poll() is None:
                launch.send_signal(signal.SIGCONT)
                launch.kill()
                launch.wait()
        for pids in processes(self.run).values():
            kill(pids, signal.SIGCONT)
            kill(pids)


# --- Leases ---------------------------------------------------------------------------------------

def other_machine():
    """Words that run a command where process numbers mean something else, as on another machine."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        print("SKIPPED: needs root and process namespaces")
        sys.exit(SKIPPED)
    return words


@case
def lost_lease(bench):
    """A launcher sleeps while its ranks train: a second launch is refused and has changed nothing.
    Then its ranks die, and a third goes on: the sleeper, awake again, ends and writes nothing, and
    its successor does not notice."""
    words = other_machine()
    first = bench.launch(ENDLESS)
    bench.await_commits()
    frozen = (bench.run / "config.toml").read_bytes()
    first.send_signal(signal.SIGSTOP)
    log = bench.directory / "second.log"
    second = bench.launch(["train.steps=200", *ENDLESS[1:]], before=words, more=["--allow-schedule-change"], log=log)
    require(second.wait(90) == 64 and "in use by" in bench.text(log), "the second launch: %s" % bench.text(log))
    require((bench.run / "config.toml").read_bytes() == frozen, "a refused launch changed config.toml")
    require(not bench.ledger("schedule"), "a refused launch recorded its schedule")
    for pids in (processes(bench.run).get(name, []) for name in ("mpirun", "anyorder-train", "anyorder-ckptd")):
        kill(pids)
    log = bench.directory / "third.log"
    third = bench.launch(ENDLESS, before=words, log=log)
    bench.await_commits(len(bench.ledger("commit")) + 1)
    first.send_signal(signal.SIGCONT)
    bench.await_end(first, 93)
    require(re.search(r"was taken by run '.*', attempt 3, process", bench.text()), bench.text())
    require(not [r for r in bench.ledger("exit") if r["attempt"] == 1], "a launcher without a lease wrote to the ledger")
    bench.await_commits(len(bench.ledger("commit")) + 1)
    # To the launcher, not to what gave it its own process numbers.
    children = pathlib.Path("/proc/%d/task/%d/children" % (third.pid, third.pid)).read_text().split()
    kill([int(pid) for pid in children], signal.SIGTERM)
    require(third.wait(60) == 75, bench.text(log))
    bench.require_audit()


def main():
    bin_dir, work, shim, name = sys.argv[1:]
    programs = Programs(bin_dir, work)
    if name == "prepare":
        return programs.make_dataset()
    bench = Bench(programs, pathlib.Path(work).resolve() / name, pathlib.Path(shim).resolve())
    with contextlib.closing(bench):
        CASES[name](bench)
    shutil.rmtree(bench.directory)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit("FAILED: %s" % failure)
