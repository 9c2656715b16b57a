"""The real programs of a run: starting them, finding their processes, reading what they write."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 120
MICROBATCHES, LAYERS = 8, 3  # of tiny.toml
# Only what never comes is waited for so long: a busy machine must not fail a case.
PATIENCE_S = 400
STATE_LOG = "ckptd.node00.jsonl"


class Failure(Exception):
    """Something that must never happen happened."""


class Programs:
    """The programs of one build, and the dataset and undisturbed run that all runs share."""

    def __init__(self, bin_dir, work):
        self.bin = pathlib.Path(bin_dir).resolve()
        self.work = pathlib.Path(work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.reference = self.work / "reference"

    def prepare(self):
        """Makes the dataset and the undisturbed run on one rank."""
        self.make_dataset()
        shutil.rmtree(self.reference, ignore_errors=True)
        self.run(self.launch_command(self.reference, 1, ["train.steps=%d" % STEPS, "checkpoint.every=30"]))

    def make_dataset(self):
        corpus = self.work / "corpus.txt"
        with open(corpus, "wb") as out:
            subprocess.run(["python3", HERE.parent / "launcher/make_text.py", "1"], stdout=out, check=True)
        shutil.rmtree(self.work / "shards", ignore_errors=True)
        self.run([str(self.bin / "anyorder"), "prep", "--input", str(corpus), "--output", str(self.work / "shards"),
                  "--vocab-size", "300", "--no-filter", "--no-dedup"])

    def run(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Failure("%s: exit status %d: %s" % (" ".join(command), done.returncode, done.stdout[-2000:]))

    def anyorder(self, *words):
        return subprocess.run([self.bin / "anyorder", *map(str, words)], capture_output=True, text=True)

    def launch_command(self, run, ranks, settings):
        command = [self.bin / "anyorder", "launch", "--config", HERE / "tiny.toml", "--run-dir", run, "--ranks", ranks,
                   "--set", "data.shards=%s" % (self.work / "shards")]
        for setting in settings:
            command += ["--set", setting]
        return [str(c) for c in command]

    def verify(self, checkpoint):
        """(exit status, report) of reading every byte of a checkpoint."""
        done = self.anyorder("inspect", checkpoint, "--verify", "--json")
        return done.returncode, done.stdout + done.stderr

    def state_digest(self, run, step):
        status, report = self.verify(run / "checkpoints" / ("step-%09d" % step))
        if status != 0:
            raise Failure("the last checkpoint of %s does not load: %s" % (run, report))
        return json.loads(report)["state_digest"]

    def audit(self, run, steps):
        """What the program's own judge of a run directory objects to; it knows of no undisturbed
        run, but samples every step anew."""
        done = self.anyorder("inspect", run, "--ledger", "--json")
        if done.returncode not in (0, 65):
            return ["inspect --ledger ended with %d: %s" % (done.returncode, done.stderr)]
        report = json.loads(done.stdout)
        faults = ["inspect --ledger: %s" % problem for problem in report["problems"]]
        if not report["adds_up"] or report["compared_with_plan"] != steps + report["redone_steps"]:
            faults.append("inspect --ledger: %s" % {key: value for key, value in report.items() if key != "attempts"})
        return faults


class Launch(subprocess.Popen):
    """One `anyorder launch` in the background; its output goes to the end of `log`. `before`: words
    in front of the command; `more`: at its end."""

    def __init__(self, programs, run, ranks, settings, log, before=(), more=(), **popen):
        self.run, self.ranks = run, ranks
        command = [*before, *programs.launch_command(run, ranks, settings), *more]
        with open(log, "ab") as out:
            out.write(("\n$ %s\n" % " ".join(command)).encode())
            out.flush()
            popen = {"stdout": out, "stderr": out, "start_new_session": True, **popen}
            super().__init__(command, stdin=subprocess.DEVNULL, **popen)

    def await_end(self, what):
        """Its exit status."""
        try:
            return self.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failure("%s: the launch did not end within %d s" % (what, PATIENCE_S))


def takes_signals(pid):
    """Whether a launcher waits for them; before that it is not the launcher yet."""
    try:
        text = pathlib.Path("/proc/%d/status" % pid).read_text()
    except OSError:
        return False
    blocked = int(next(line for line in text.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    return bool(blocked >> (signal.SIGTERM - 1) & 1)


def is_at_work(pid):
    """Whether its first thread computes, or waits for a core or a disk."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_bytes().rpartition(b")")[2].split()[0] in (b"R", b"D")
    except OSError:  # it has ended
        return False


def processes(run):
    """Process ids by program of what runs for a run directory: {"anyorder-train": [...], ...}; mpirun counts its own."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(run) in words:
            name = os.path.basename(words[0]).decode()
            found.setdefault("mpirun" if name == "prterun" else name, []).append(int(entry.name))  # what Open MPI 5's becomes
    return found


def kill(pids, signal_number=signal.SIGKILL):
    """How many of them were there to be hit."""
    hit = 0
    for pid in pids:
        try:
            os.kill(pid, signal_number)
            hit += 1
        except ProcessLookupError:
            pass
    return hit


def await_true(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Failure("not within %d s: %s" % (PATIENCE_S, what))
        time.sleep(0.01)


def await_gone(run, names):
    await_true(lambda: not processes(run).keys() & set(names), "the end of %s" % ", ".join(names))


def whole_lines(text):
    """A torn last line is left out."""
    return text[:text.rfind(b"\n") + 1].splitlines()


def json_lines(path, first=0):
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in whole_lines(text)[first:]]


def trained_steps(run):
    """Steps in the metrics now."""
    try:
        lines = whole_lines((run / "metrics.jsonl").read_bytes()[-4096:])
        return json.loads(lines[-1])["step"] if lines else 0
    except (FileNotFoundError, ValueError):
        return 0


class StateLog:
    """Follows what the checkpoint service says about its saves."""

    def __init__(self, run):
        self.path = run / STATE_LOG
        self.seen = len(json_lines(self.path))

    def new_records(self):
        new = json_lines(self.path, self.seen)
        self.seen += len(new)
        return new
