"""One fault that is made on purpose in a real run, and what must become of it (README.md).
fault_cases.py BIN_DIR WORK_DIR SHIM CASE; `prepare` first makes the dataset that all cases share."""
import contextlib
import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from programs import PATIENCE_S, Failure, Launch, Programs, await_true, json_lines, kill, processes, takes_signals

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


def skip(needs):
    print("SKIPPED: needs %s" % needs)
    sys.exit(SKIPPED)


class Bench:
    """A place for one case: its runs, its logs, and the shim's rules."""

    def __init__(self, programs, directory, shim):
        self.programs, self.directory, self.shim, self.anyorder = programs, directory, shim, programs.anyorder
        self.run, self.log = directory / "run", directory / "log"
        self.launched, self.mounted, self.runs = [], [], set()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)

    def environment(self, rules, clock=None):
        added = {}
        if rules:
            added["ANYORDER_FAULTS"] = ";".join(",".join("%s=%s" % pair for pair in rule.items()) for rule in rules)
        if clock:
            added["ANYORDER_CLOCK"] = str(clock)
        return {**os.environ, **added, **({"LD_PRELOAD": str(self.shim)} if added else {})}

    def launch(self, settings=(), ranks=1, rules=(), clock=None, log=None, **how):
        self.runs.add(self.run)
        started = Launch(self.programs, self.run, ranks, settings, log or self.log, env=self.environment(rules, clock), **how)
        self.launched.append(started)
        return started

    def ledger(self, event=None):
        return [r for r in json_lines(self.run / "ledger.jsonl") if event in (None, r["event"])]

    def await_commits(self, number=1):
        await_true(lambda: len(self.ledger("commit")) >= number, "%d commits; log: %s" % (number, self.text()))

    def await_end(self, launch, status):
        ended = launch.await_end("what should end with %d, log %s" % (status, self.log))
        require(ended == status, "the launch ended with %d, not %d: %s" % (ended, status, self.text()))

    def stop(self, launch):
        launch.send_signal(signal.SIGTERM)
        self.await_end(launch, 75)

    def mount_disk(self, directory, size):
        """An empty disk of `size` there, which only this process and what it starts can see. Ends
        the case where that is not allowed."""
        clone_newns = 0x20000
        commands = [["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", "size=%s" % size, "tmpfs", directory]]
        directory.mkdir(exist_ok=True)
        if (ctypes.CDLL(None).unshare(clone_newns) != 0 or
                any(subprocess.run(command, capture_output=True).returncode != 0 for command in commands)):
            skip("root and a tmpfs")
        self.mounted.append(directory)

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
        for run in self.runs:
            for pids in processes(run).values():
                kill(pids, signal.SIGCONT)
                kill(pids)
        for directory in self.mounted:
            subprocess.run(["umount", "--lazy", directory])


# --- Leases ---------------------------------------------------------------------------------------

def other_machine():
    """Words that run a command where process numbers mean something else, as on another machine."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        skip("root and process namespaces")
    return words


@case
def lost_lease(bench):
    """Two launchers sleep while their ranks train. To one run a second launch comes: it is refused
    and has changed nothing. Of the other the ranks die, and a second launch goes on: the sleeper,
    awake again, ends and writes nothing, and its successor does not notice."""
    words = other_machine()
    used, taken = bench.directory / "used", bench.directory / "taken"
    logs = {name: bench.directory / (name + ".log") for name in ("refused", "successor")}
    sleepers = {}
    for bench.run in (used, taken):
        sleepers[bench.run] = bench.launch(ENDLESS)
        bench.await_commits()
        sleepers[bench.run].send_signal(signal.SIGSTOP)
    kill(pid for name in ("mpirun", "anyorder-train", "anyorder-ckptd") for pid in processes(taken).get(name, []))
    commits = len(bench.ledger("commit"))
    successor = bench.launch(ENDLESS, before=words, log=logs["successor"])
    bench.run = used
    frozen = (used / "config.toml").read_bytes()
    refused = bench.launch(["train.steps=200000000", *ENDLESS[1:]], before=words, more=["--allow-schedule-change"], log=logs["refused"])
    # Both wait for as long as a lease lives.
    require(refused.wait(PATIENCE_S) == 64 and "in use by" in bench.text(logs["refused"]), bench.text(logs["refused"]))
    require((used / "config.toml").read_bytes() == frozen, "a refused launch changed config.toml")
    require(not bench.ledger("schedule"), "a refused launch recorded its schedule")
    bench.run = taken
    bench.await_commits(commits + 1)
    sleepers[taken].send_signal(signal.SIGCONT)
    bench.await_end(sleepers[taken], 93)
    require(re.search(r"was taken by run '.*', attempt 2, process", bench.text()), bench.text())
    require(not [r for r in bench.ledger("exit") if r["attempt"] == 1], "a launcher without a lease wrote to the ledger")
    bench.await_commits(len(bench.ledger("commit")) + 1)
    # To the launcher, not to what gave it its own process numbers.
    children = pathlib.Path("/proc/%d/task/%d/children" % (successor.pid, successor.pid)).read_text().split()
    kill([int(pid) for pid in children], signal.SIGTERM)
    require(successor.wait(PATIENCE_S) == 75, bench.text(logs["successor"]))
    bench.require_audit()


# --- Records and metrics --------------------------------------------------------------------------

ENOSPC, EIO = errno.ENOSPC, errno.EIO


@case
def cut_ledger(bench):
    """A ledger record is cut short in rank 0, then in the launcher, as by a disk that was full for a
    moment: the run ends or goes on, and every later command reads its ledger."""
    full = {"call": "write", "path": "ledger.jsonl", "times": 2, "short": 40, "errno": ENOSPC}
    broken = bench.launch(["train.steps=30", "checkpoint.every=10"],
                          rules=[{**full, "program": "anyorder-train", "nth": 3}, {**full, "program": "anyorder", "nth": 3}])
    bench.await_end(broken, 74)
    done = bench.anyorder("status", "--run-dir", bench.run)
    require(done.returncode == 0 and "fragment" in done.stderr, "status: %s %s" % (done.returncode, done.stderr))
    bench.await_end(bench.launch(["train.steps=30", "checkpoint.every=10"]), 0)
    bench.require_audit()


@case
def full_disk_for_a_moment(bench):
    """The disk under a run is filled and emptied again and again: every command works meanwhile and
    after it, and the run ends in the state of one that nobody disturbed."""
    settings = ["train.steps=1500", "checkpoint.every=50"]
    disk = bench.directory / "disk"
    bench.mount_disk(disk, "24m")
    undisturbed = bench.directory / "run"
    reference = bench.launch(settings, log=bench.directory / "reference.log")
    bench.run = disk / "run"
    again = lambda: bench.launch([*settings, "checkpoint.max_failed_saves=1000"])
    launch = again()
    bench.await_commits()
    for _ in range(4):
        given_up = bench.log.read_text().count("was not saved")
        fill(disk / "ballast")
        await_true(lambda: launch.poll() is not None or bench.log.read_text().count("was not saved") > given_up, "a save without room")
        done = bench.anyorder("status", "--run-dir", bench.run)
        require(done.returncode == 0, "status on a full disk: %s" % done.stderr)
        (disk / "ballast").unlink()
        if launch.poll() is not None:
            require(launch.returncode in (0, 74, 93), "status %d: %s" % (launch.returncode, bench.text()))
            launch = again()
        time.sleep(0.3)
    if launch.wait(PATIENCE_S) != 0:
        bench.await_end(again(), 0)
    bench.require_audit()
    require(reference.wait(PATIENCE_S) == 0, bench.text(bench.directory / "reference.log"))
    states = {bench.programs.state_digest(run, 1500) for run in (bench.run, undisturbed)}
    require(len(states) == 1, "the run ends in another state than the undisturbed one")


def fill(file):
    with contextlib.suppress(OSError), open(file, "wb", buffering=0) as ballast:
        for block in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while ballast.write(bytes(block)) == block:
                    pass


@case
def unwritten_metrics(bench):
    """Lines of the metrics could not be written for a while: the run goes on, no checkpoint vouches
    for them meanwhile, and the audit finds all of them in the end."""
    full = bench.directory / "full"
    rule = {"program": "anyorder-train", "call": "write", "path": "metrics.jsonl", "errno": ENOSPC, "while": full}
    launch = bench.launch([*ENDLESS, "checkpoint.max_failed_saves=1000"], rules=[rule])
    bench.await_commits()
    full.touch()
    await_true(lambda: "was not saved: write" in bench.text(), "a save that is given up")
    require(bench.text().count("are kept until there is room") == 1, bench.text())
    full.unlink()
    bench.await_commits(len(bench.ledger("commit")) + 2)
    bench.stop(launch)
    bench.require_audit()


@case
def unsynced_metrics(bench):
    """What a checkpoint vouches for cannot be made durable: it is not staged."""
    broken = {"program": "anyorder-train", "call": "sync", "path": "metrics.jsonl", "errno": EIO, "nth": 3}
    launch = bench.launch([*ENDLESS, "checkpoint.max_failed_saves=2"], rules=[broken])
    bench.await_end(launch, 74)
    commits = [r["step"] for r in bench.ledger("commit")]
    require(commits == [50, 100], "committed: %s" % commits)
    bench.require_audit()


@case
def only_for_people(bench):
    """TensorBoard does not end a run: it is warned of once."""
    rules = [{"program": "anyorder-train", "call": "write", "path": "tfevents", "errno": ENOSPC, "nth": 20}]
    bench.await_end(bench.launch(["train.steps=40", "checkpoint.every=10"], rules=rules), 0)
    require(len(bench.ledger("start")) == 1, bench.text())
    require(bench.text().count("no more for TensorBoard") == 1, bench.text())
    bench.require_audit()


# --- Slow ranks -----------------------------------------------------------------------------------

@case
def slow_rank(bench):
    """A disk makes rank 0 slow from step 501 on: within 20 steps it is named on the launcher's
    output, in `status` and for monitoring, then in the ledger and in `report`."""
    # So slow that its 20 steps leave room for reports that a busy machine brings late.
    slow = {"program": "anyorder-train", "call": "write", "path": "metrics.jsonl", "stall_ms": 400, "nth": 501}
    launch = bench.launch([*ENDLESS, "health.straggler_ratio=1.2"], ranks=2, rules=[slow])
    await_true(lambda: "straggler after" in bench.text(), "a straggler")
    step = int(re.search(r"straggler after step (\d+): rank 0 on \S+: compute ", bench.text()).group(1))
    require(500 < step <= 520, "named after step %d" % step)
    status = lambda: bench.anyorder("status", "--run-dir", bench.run).stdout
    await_true(lambda: re.search(r"straggler +rank 0 on .* a straggler", status()), "its name in `status`")
    sample = lambda: re.search(r'\nanyorder_straggler{[^}]*rank="0"[^}]*} (\d)', (bench.run / "metrics.prom").read_text()).group(1)
    require(sample() == "1", (bench.run / "metrics.prom").read_text())
    bench.stop(launch)
    events = [r for r in bench.ledger() if r["event"] in ("straggler", "exit")]
    require([r["event"] for r in events] == ["straggler", "exit"] and (events[0]["rank"], events[0]["step"]) == (0, step), events)
    require(sample() == "1" and "\nanyorder_running{" in (bench.run / "metrics.prom").read_text(), (bench.run / "metrics.prom").read_text())
    done = bench.anyorder("report", "--run-dir", bench.run, "--output", bench.directory / "report.html")
    page = (bench.directory / "report.html").read_text() if done.returncode == 0 else done.stderr
    require(re.search(r">straggler</td></tr>", page) and re.search(r"rank 0 on .*until the end of the start", page), page[:2000])
    bench.require_audit()


# --- What a launcher must not wait for ------------------------------------------------------------

@case
def stderr_held(bench):
    """Nobody reads what the launcher prints, and the log in the run directory takes nothing, either:
    a stop signal is obeyed all the same."""
    stuck = bench.directory / "stuck"
    rule = {"program": "anyorder", "call": "write", "path": "train.log", "stall_ms": 1, "while": stuck}
    ends = os.pipe()
    with os.fdopen(ends[1], "wb", 0) as write_end, os.fdopen(ends[0]):
        os.set_blocking(write_end.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write_end.fileno(), bytes(1))
        os.set_blocking(write_end.fileno(), True)
        stuck.touch()
        launch = bench.launch(ENDLESS, rules=[rule], stdout=write_end, stderr=write_end)
        bench.await_commits()
        bench.stop(launch)
    require(bench.ledger("stop"), "nothing was saved where it stopped")


@case
def deaf_mpirun(bench):
    """mpirun is stopped, and so passes no request on: its ranks are ended all the same."""
    launch = bench.launch([*ENDLESS, "health.contact_timeout_seconds=8"])
    bench.await_commits()
    kill(processes(bench.run)["mpirun"], signal.SIGSTOP)
    bench.stop(launch)
    require("which mpirun or srun does not pass on" in bench.text(), bench.text())
    require(not processes(bench.run).get("anyorder-train"), "ranks outlive their launcher")
    bench.require_audit()


@case
def stalled_start(bench):
    """A file does not open while a run starts: the configuration for the launcher, which is told to
    stop; a shard for a rank, whose launcher is; and the configuration for a rank, whose start is
    given up and made again."""
    stuck = bench.directory / "stuck"
    stall = lambda program, path: [{"program": program, "call": "open", "path": path, "stall_ms": 1, "while": stuck}]
    stuck.touch()
    launches = {}
    for name, rules, settings in (("launcher", stall("anyorder", "tiny.toml"), ENDLESS),
                                  ("shard", stall("anyorder-train", "shard-"), ENDLESS),
                                  ("config", stall("anyorder-train", "config.toml"), ["train.steps=20", "health.start_timeout_seconds=12"])):
        bench.run = bench.directory / name
        launches[name] = bench.launch(settings, rules=rules, log=bench.directory / (name + ".log"))
    logs = {name: lambda name=name: bench.text(bench.directory / (name + ".log")) for name in launches}
    await_true(lambda: takes_signals(launches["launcher"].pid), "a launcher that takes signals")
    await_true(lambda: "starting at step" in logs["shard"](), "a rank that begins")
    for name in ("launcher", "shard"):
        launches[name].send_signal(signal.SIGTERM)
    for name in ("launcher", "shard"):
        require(launches[name].wait(PATIENCE_S) == 75, logs[name]())
    require("while reading the configuration" in logs["launcher"](), logs["launcher"]())
    await_true(lambda: "starting again" in logs["config"](), "a start that is given up: %s" % logs["config"]())
    require("in phase 'config.toml', no progress for" in logs["config"](), logs["config"]())
    stuck.unlink()
    require(launches["config"].wait(PATIENCE_S) == 0, logs["config"]())


@case
def clock_set(bench):
    """The wall clock is set an hour back and forth: a stop signal in the first second is obeyed, and
    no duration is negative."""
    clock = bench.directory / "clock"
    shift = lambda seconds: clock.write_bytes(struct.pack("<q", seconds * 10**9))
    shift(0)
    launch = bench.launch(ENDLESS, clock=clock)
    await_true(lambda: launch.poll() is not None or processes(bench.run).get("anyorder-ckptd"), "the service")
    shift(3600)
    bench.await_commits()
    shift(-3600)
    bench.await_commits(2)
    bench.stop(launch)
    for words in (["status", "--run-dir", bench.run], ["inspect", bench.run, "--ledger"]):
        done = bench.anyorder(*words)
        require(done.returncode == 0, "%s: %s" % (words, done.stderr))
        require(not re.search(r"(^|[ (])-\d", done.stdout), "a negative time: %s" % done.stdout)


@case
def no_room(bench):
    """What Open MPI needs of a machine is checked before it can hang or be killed."""
    few = bench.launch(["train.steps=10"], before=["prlimit", "--nofile=32:32"])
    bench.await_end(few, 74)
    require("may open 32 files, but mpirun" in bench.text(), bench.text())
    raised = bench.launch(["train.steps=10"], before=["prlimit", "--nofile=32:1024"])
    bench.await_end(raised, 0)
    small = bench.directory / "small"
    for disk, size, temporary in ((small, "8m", small), (pathlib.Path("/dev/shm"), "3m", bench.directory)):
        bench.mount_disk(disk, size)
        bench.await_end(bench.launch(["train.steps=10"], before=["env", "TMPDIR=%s" % temporary]), 74)
        said = "'%s' has %d KiB free, but mpirun and the ranks need" % (disk, 1024 * int(size[:-1]))
        require(said in bench.text(), bench.text())


@case
def stalled_files(bench):
    """No call into the run directory comes back, for longer than services and ranks may be silent:
    that is said, nobody is ended, and the run goes on when it is over."""
    stuck = bench.directory / "stuck"
    rules = [{"call": call, "path": "stalled_files/run/", "stall_ms": 1, "while": stuck} for call in ("write", "sync", "open", "rename", "unlink")]
    launch = bench.launch([*ENDLESS, "health.contact_timeout_seconds=8", "dist.hang_report_seconds=3"], ranks=2, rules=rules)
    bench.await_commits()
    stuck.touch()
    await_true(lambda: "file system stalls on" in bench.text(), "a stall that is said: %s" % bench.text())
    stuck.unlink()
    await_true(lambda: "file system answers again on" in bench.text(), "the end of the stall")
    bench.await_commits(len(bench.ledger("commit")) + 2)
    bench.stop(launch)
    require(len(bench.ledger("start")) == 1 and "killing" not in bench.text(), bench.text())
    bench.require_audit()


# --- Strangers ------------------------------------------------------------------------------------

NOBODY = 65534
# Connects again and again, from several threads: says nothing, sends half a frame, a frame of the
# greatest length (its checksum is right, to read it takes 820 MiB), another protocol; leaves by a
# reset.
STRANGER = r"""
import collections, itertools, socket, struct, sys, threading, time
address = ("127.0.0.1", int(sys.argv[1]))
deepest = b"AOCK" + struct.pack("<II", 16 << 20, 0xb0036f73) + b"[" * (16 << 20)
held = collections.deque(maxlen=300)
def disturb():
    for words in itertools.cycle([b"", b"AOCK\x10", deepest, b"GET / HTTP/1.1\r\n\r\n", None]):
        time.sleep(0.005)
        try:
            held.append(socket.create_connection(address))
            if words is None:
                held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                held[-1].close()
            else:
                held[-1].sendall(words)
        except OSError:
            pass
for _ in range(8):
    threading.Thread(target=disturb).start()
"""


@case
def strangers(bench):
    """Another user connects to the launcher's port for as long as a run lasts: its launcher, which
    has few descriptors, keeps most of them and its memory, and the run ends in one start and in the
    state of one that nobody disturbed."""
    settings = ["train.steps=1000", "checkpoint.every=100", "health.contact_timeout_seconds=20"]
    reference = bench.launch(settings, log=bench.directory / "reference.log")
    undisturbed, bench.run = bench.run, bench.directory / "disturbed"
    launch = bench.launch(settings, before=["prlimit", "--nofile=256:256"])
    endpoint, launcher = bench.run / ".launch/health-1", pathlib.Path("/proc/%d" % launch.pid)
    await_true(lambda: launch.poll() is not None or endpoint.exists(), "a port")
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    port = str(json.loads(endpoint.read_text())["port"])
    most_files = most_kib = 0
    with subprocess.Popen(["python3", "-c", STRANGER, port], cwd="/", stderr=subprocess.DEVNULL, **other) as stranger:
        while launch.poll() is None:
            with contextlib.suppress(OSError, AttributeError):
                most_files = max(most_files, len(list((launcher / "fd").iterdir())))
                most_kib = int(re.search(r"VmHWM:\s+(\d+)", (launcher / "status").read_text()).group(1))
            require(stranger.poll() is None, "the strangers left")
            time.sleep(0.02)
        stranger.kill()
    bench.await_end(launch, 0)
    require(most_files < 100 and most_kib < 256 << 10, "the launcher had %d files open and %d KiB" % (most_files, most_kib))
    said = bench.log.read_text()
    require(len(bench.ledger("start")) == 1 and "killing" not in said, said)
    require("somebody who does not know this start's token" in said, "no stranger came")
    bench.require_audit()
    require(reference.wait(PATIENCE_S) == 0, bench.text(bench.directory / "reference.log"))
    states = {bench.programs.state_digest(run, 1000) for run in (bench.run, undisturbed)}
    require(len(states) == 1, "the run ends in another state than the undisturbed one")


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
