"""Runs the probe and brings back its facts: as a job of its own, in the caller's allocation, or on
this machine alone."""
import base64
import functools
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
POLL_SECONDS = 0.5
SPEAK_EVERY = 30.0
CLEAN_LIMIT = 10.0
# How long sbatch may take to say the number of a job that is not wanted any more, or the probe to
# remove what it wrote.
STOP_LIMIT = 20.0
# After the job's end a network file system may show its last lines only when this node's attribute
# cache expires.
LAST_LINES_LIMIT = 65.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL",
         "DEADLINE", "PREEMPTED")
# Slurm 22.05 gives this reason first and the exact one a second later; on a busy controller it may
# stay.
VAGUE, VAGUE_LIMIT = "PartitionConfig", 5.0
# Why a job waits that waiting does not end: it asks for more than it may have (`man squeue`, JOB
# REASON CODES). A queue, nodes that are down, and what all jobs of a user or group share (Grp,
# PerUser) do end, or may.
NEVER = re.compile(
    r"(Partition(NodeLimit|TimeLimit|Config)|BadConstraints|Invalid(Account|QOS)|"
    r"(Account|QOS)NotAllowed|DependencyNeverSatisfied|ReservationDeleted|QOSTimeLimit|"
    r"MaxMemPerLimit|QOSMin\w+|(Assoc|QOS)Max\w+Per(Job(Limit)?|Node))$")


class JobFailed(Exception):
    """The job could not be run, or ended before it had said all. The text is for the user."""

    def __init__(self, text, facts=(), has_run=False):
        super(JobFailed, self).__init__(text)
        self.facts, self.has_run = list(facts), has_run


def say(text):
    print("doctor: " + text, file=sys.stderr, flush=True)


def source(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def batch_script(options):
    """Bash that sources the run's environment file as a run's batch script does, and hands over to
    Python; all in one file, because nodes may not see this directory."""
    payload = {"agent": source("doctor_agent.py"), "mpi": source("doctor_mpi.py"),
               "options": options}
    text = json.dumps([payload, source("doctor_probe.py")])
    # Through a descriptor: an argument may have 128 KiB at most.
    return """#!/bin/bash
environment=%s
%s
if [ -r "$environment" ]; then
  environment=$(realpath -- "$environment")
  check_environment "$environment" || exit
  . "$environment"
fi
command -v python3 >/dev/null || { echo 'doctor: no python3 on PATH of the batch host'; exit 127; }
exec python3 -c 'import base64,json,zlib
payload,probe=json.loads(zlib.decompress(base64.b64decode(open(3).read())).decode())
exec(probe,{"__name__":"__main__","PAYLOAD":payload})' 3<<'END'
%s
END
""" % (shlex.quote(options["environment"]), source("check_environment.sh"),
       base64.b64encode(zlib.compress(text.encode())).decode())


def parse_facts(text):
    """Facts, and the lines that are none."""
    facts, other = [], []
    for line in text.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            fact = None
        if isinstance(fact, dict) and "fact" in fact:
            if fact["fact"] == "begin":
                facts = []  # the job was requeued and has begun again
            facts.append(fact)
        elif line.strip():
            other.append(line.strip())
    return facts, other


def is_whole(facts):
    return any(fact["fact"] == "end" for fact in facts)


def run_to_end(command, text="", terminate=False, on_stop=None):
    """Status, output and errors of a command that a signal to doctor must not leave half done: it
    is in a process group of its own, and when doctor is stopped it is waited for, after TERM if
    `terminate`; then `on_stop` gets its output."""
    any_bytes = functools.partial(tempfile.TemporaryFile, "w+", errors="surrogateescape")
    with any_bytes() as given, any_bytes() as output, any_bytes() as errors:
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=output, stderr=errors,
                                   start_new_session=True)
        try:
            process.wait()
        except BaseException:
            if terminate:
                process.terminate()
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
            output.seek(0)
            if on_stop:
                on_stop(output.read())
            raise
        output.seek(0)
        errors.seek(0)
        return process.returncode, output.read(), errors.read()


def run_here(options):
    """In the allocation that the caller is in, or on this machine without Slurm."""
    with tempfile.NamedTemporaryFile("w", errors="surrogateescape", suffix=".sh") as script:
        script.write(batch_script(options))
        script.flush()
        status, output, errors = run_to_end(["bash", script.name], terminate=True)
    facts, other = parse_facts(output)
    if not is_whole(facts):
        raise JobFailed("the checks ended early (status %d): %s" % (
            status, "; ".join((other + errors.splitlines())[-3:]) or "no message"))
    return facts


class Job:
    """One batch job from submission to its last line."""

    def __init__(self, options, sbatch, wait_limit):
        self.options, self.wait_limit = options, wait_limit
        self.log = os.path.join(options["run_dir"], ".doctor-%d.log" % os.getpid())
        self.submitted = self.started = time.monotonic()
        command = ["sbatch", "--parsable", "--job-name=anyorder-doctor", "--requeue",
                   "--open-mode=append", "--chdir=/", "--output=" + self.log,
                   "--nodes=%d" % options["nodes"],
                   "--ntasks-per-node=%d" % options["ranks_per_node"]] + sbatch
        status, output, errors = run_to_end(command, batch_script(options), on_stop=self.cancel)
        if status != 0:
            raise JobFailed("sbatch refuses the job: %s; compare with --partition, --account and "
                            "the options after --" % (" ".join(errors.split()) or "no message"))
        self.number = output.strip().split(";")[0]
        say("job %s submitted: %d nodes, %d ranks on each" % (
            self.number, options["nodes"], options["ranks_per_node"]))

    def fields(self):
        """Slurm's record of the job; {} when it has none (any more) or does not answer."""
        done = subprocess.run(["scontrol", "-o", "show", "job", self.number],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              errors="surrogateescape")
        return dict(re.findall(r"(\w+)=(\S*)", done.stdout)) if done.returncode == 0 else {}

    def facts(self):
        """Follows the job to its end. Errors: JobFailed, the job being cancelled or over."""
        spoken, state, record = time.monotonic(), "", {}
        try:
            while True:
                record = self.fields() or record
                before, state = state, record.get("JobState", "COMPLETED")
                if state == "RUNNING" and before != "RUNNING":
                    self.started = time.monotonic()
                    say("job %s runs on %s" % (self.number, record.get("NodeList", "?")))
                facts, _ = parse_facts(self.read_log())
                if is_whole(facts) or state in ENDED:
                    break
                if state == "PENDING":
                    self.check_may_start(record)
                if time.monotonic() - spoken > SPEAK_EVERY:
                    spoken = time.monotonic()
                    say("job %s is %s for %d s (%s)" % (
                        self.number, state, spoken - self.submitted, record.get("Reason", "?")))
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.clean_up(cancel=True)
            raise
        return self.last_facts(state, record)

    def check_may_start(self, record):
        waited, reason = time.monotonic() - self.submitted, record.get("Reason", "?")
        if NEVER.match(reason) and (reason != VAGUE or waited > VAGUE_LIMIT):
            raise JobFailed("job %s can never start (%s) and was cancelled" % (
                self.number, reason), [{"fact": "never", "number": self.number, "reason": reason}])
        if waited > self.wait_limit:
            raise JobFailed(
                "job %s still waits after %d s (%s, expected start %s) and was cancelled; try "
                "again with a longer --wait, fewer --nodes or another --partition" % (
                    self.number, self.wait_limit, reason, record.get("StartTime", "?")))

    def last_facts(self, state, record):
        deadline = time.monotonic() + (LAST_LINES_LIMIT if state == "COMPLETED" else 3.0)
        while True:
            facts, other = parse_facts(self.read_log())
            if is_whole(facts) or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        self.clean_up()
        facts.append({"fact": "job", "requeue": record.get("Requeue"), "number": self.number,
                      "waited": self.started - self.submitted})
        if not is_whole(facts):
            raise JobFailed(
                "job %s ended as %s (exit code %s, reason %s) before all checks were done: %s" % (
                    self.number, state, record.get("ExitCode", "?"), record.get("Reason", "?"),
                    "; ".join(other[-3:]) or "it wrote nothing to %s" % self.log),
                facts, has_run=True)
        return facts

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def cancel(self, output):
        """For a doctor that is stopped while sbatch works: the job may be in the queue already."""
        self.number = output.strip().split(";")[0]
        if self.number:
            self.clean_up(cancel=True)

    def clean_up(self, cancel=False):
        """What the job itself removes, unless it is killed; and its log."""
        if cancel:
            subprocess.run(["scancel", self.number], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + CLEAN_LIMIT
        while self.fields().get("JobState") in ("RUNNING", "COMPLETING") and \
                time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        pattern = ".doctor-%s-*" % self.number
        for path in glob.glob(os.path.join(glob.escape(self.options["run_dir"]), pattern)):
            shutil.rmtree(path, ignore_errors=True)
        try:
            os.unlink(self.log)
        except OSError:
            pass


def nodes_without(options, sbatch):
    """Which nodes do not have the run directory, {node: text}, asked by srun from here: for a batch
    host that cannot even write its log, or whose Slurm (24.05 or newer) made the directory for it.
    Empty if this cannot be asked either."""
    test = ("[ -e \"$1\" ] && [ -w \"${1%/*}\" ] && echo \"@ok $SLURMD_NODENAME\" || "
            "echo \"@no $SLURMD_NODENAME\"")
    nodes = options["nodes"]
    command = ["srun", "--job-name=anyorder-doctor", "--mpi=none", "--chdir=/", "--immediate=60",
               "--nodes=%d" % nodes, "--ntasks=%d" % nodes, "--ntasks-per-node=1"] + sbatch
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=options["run_dir"]) as mark:
            done = subprocess.run(command + ["sh", "-c", test, "sh", mark.name],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, errors="surrogateescape", timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {node: "'%s' is not there, or not writable" % options["run_dir"]
            for node in re.findall(r"^@no (\S+)", done.stdout, re.M)}
