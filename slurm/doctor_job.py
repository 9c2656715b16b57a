"""Runs the probe: as a job of its own, in the allocation one is in, or on this machine alone; brings back its facts."""
import base64
import glob
import json
import os
import re
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
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED")
# Slurm 22.05 gives this reason first and the exact one a second later; on a busy controller it may
# stay.
VAGUE, VAGUE_LIMIT = "PartitionConfig", 5.0
# Why a job waits that waiting does not end: it asks for more than it may have (`man squeue`, JOB
# REASON CODES). A queue, nodes that are down, and what all jobs of a user or group share (Grp,
# PerUser) do end, or may. A held job is released by hand.
NEVER = re.compile(r"(Partition(NodeLimit|TimeLimit|Config)|BadConstraints|Invalid(Account|QOS)|(Account|QOS)NotAllowed|DependencyNeverSatisfied|"
                   r"ReservationDeleted|QOSTimeLimit|MaxMemPerLimit|QOSMin\w+|(Assoc|QOS)Max\w+Per(Job(Limit)?|Node))$")


class JobFailed(Exception):
    """The job could not be run, or ended before it had said all. The text is for the user; `facts` is what came."""

    def __init__(self, text, facts=()):
        super(JobFailed, self).__init__(text)
        self.facts = list(facts)


def say(text):
    print("doctor: " + text, file=sys.stderr, flush=True)


def source(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def batch_script(options):
    """Bash that sources the file of the run's environment, as a run's batch script does, and hands over to Python; all in one
    file, because nodes may not see this directory."""
    payload = {"agent": source("doctor_agent.py"), "mpi": source("doctor_mpi.py"), "options": options}
    packed = base64.b64encode(zlib.compress(json.dumps([payload, source("doctor_probe.py")]).encode())).decode()
    # Through a descriptor: an argument may have 128 KiB at most.
    return """#!/bin/bash
environment=%s
if [ -r "$environment" ]; then . "$environment"; fi
command -v python3 >/dev/null || { echo 'doctor: python3 is not on PATH of the batch host'; exit 127; }
exec python3 -c 'import base64,json,zlib
payload,probe=json.loads(zlib.decompress(base64.b64decode(open(3).read())).decode())
exec(probe,{"__name__":"__main__","PAYLOAD":payload})' 3<<'END'
%s
END
""" % (quote(options["environment"]), packed)


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def parse_facts(text):
    """Facts, and the lines that are none."""
    facts, other = [], []
    for line in text.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            fact = None
        if isinstance(fact, dict) and "fact" in fact:
            facts.append(fact)
        elif line.strip():
            other.append(line.strip())
    # A job that was requeued meanwhile has begun again.
    begins = [i for i, fact in enumerate(facts) if fact["fact"] == "begin"]
    return facts[begins[-1]:] if begins else facts, other


def is_whole(facts):
    return any(fact["fact"] == "end" for fact in facts)


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def run_to_end(command, text="", terminate=False, on_stop=None):
    """Status, output and errors of a command that a signal to doctor must not leave half done: it is in a process group of its own,
    and when doctor is stopped it is waited for, after TERM if `terminate`; then `on_stop` gets its output."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=output, stderr=errors, start_new_session=True)
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
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(batch_script(options))
        script.flush()
        status, output, errors = run_to_end(["bash", script.name], terminate=True)
    facts, other = parse_facts(output)
    if not is_whole(facts):
        raise JobFailed("the checks ended early (status %d): %s" % (
            status, "; ".join((other + errors.splitlines())[-3:]) or "no message"))
    return facts


def number_of(output):
    return output.strip().split(";")[0]


class Job:
    """One batch job from submission to its last line."""

    def __init__(self, options, sbatch, wait_limit):
        self.options, self.wait_limit = options, wait_limit
        self.log = os.path.join(options["run_dir"], ".doctor-%d.log" % os.getpid())
        self.submitted = time.monotonic()
        command = ["sbatch", "--parsable", "--job-name=anyorder-doctor", "--requeue", "--open-mode=append",
                   "--chdir=/", "--output=" + self.log, "--nodes=%d" % options["nodes"],
                   "--ntasks-per-node=%d" % options["ranks_per_node"]] + sbatch
        status, output, errors = run_to_end(command, batch_script(options), on_stop=self.cancel_submitted)
        if status != 0:
            raise JobFailed("sbatch refuses the job: %s; compare with --partition, --account and the options after --" %
                            (" ".join(errors.split()) or "no message"))
        self.number = number_of(output)
        say("job %s submitted: %d nodes, %d ranks on each" % (self.number, options["nodes"], options["ranks_per_node"]))

    def fields(self):
        """Slurm's record of the job; {} when it has none (any more) or does not answer at the moment."""
        done = subprocess.run(["scontrol", "-o", "show", "job", self.number], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        return dict(re.findall(r"(\w+)=(\S*)", done.stdout)) if done.returncode == 0 else {}

    def facts(self):
        """Follows the job to its end. Errors: JobFailed, the job being cancelled or over."""
        spoken, state, record = time.monotonic(), "", {}
        try:
            while True:
                record = self.fields() or record
                new_state = record.get("JobState", "COMPLETED")
                if new_state == "RUNNING" and state != "RUNNING":
                    self.started = time.monotonic()
                    say("job %s runs on %s" % (self.number, record.get("NodeList", "?")))
                state = new_state
                facts, _ = parse_facts(read_text(self.log))
                if is_whole(facts) or state in ENDED:
                    break
                now, reason = time.monotonic(), record.get("Reason", "")
                if state == "PENDING" and NEVER.match(reason) and (reason != VAGUE or now - self.submitted > VAGUE_LIMIT):
                    raise JobFailed("job %s can never start (%s) and was cancelled" % (self.number, reason),
                                    [{"fact": "never", "number": self.number, "reason": reason}])
                if state == "PENDING" and now - self.submitted > self.wait_limit:
                    raise JobFailed("job %s still waits after %d s (%s, expected start %s) and was cancelled; try again with a longer "
                                    "--wait, fewer --nodes or another --partition" % (
                                        self.number, self.wait_limit, record.get("Reason", "?"), record.get("StartTime", "?")))
                if now - spoken > SPEAK_EVERY:
                    spoken = now
                    say("job %s is %s for %d s (%s)%s" % (
                        self.number, state, now - self.submitted, record.get("Reason", "?"),
                        ", %d checks done" % len(facts) if facts else ""))
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.cancel()
            raise
        return self.last_facts(state, record)

    def last_facts(self, state, record):
        # On a network file system this node may see the last lines only after its attribute cache
        # is over.
        deadline = time.monotonic() + (65 if self.on_network() else 3)
        while True:
            facts, other = parse_facts(read_text(self.log))
            if is_whole(facts) or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        self.clean_up()
        facts.append({"fact": "job", "requeue": record.get("Requeue"), "number": self.number,
                      "waited": getattr(self, "started", self.submitted) - self.submitted})
        if not is_whole(facts):
            raise JobEnded("job %s ended as %s (exit code %s, reason %s) before all checks were done: %s" % (
                self.number, state, record.get("ExitCode", "?"), record.get("Reason", "?"), "; ".join(other[-3:]) or
                "it wrote nothing to %s" % self.log), facts)
        return facts

    def on_network(self):
        try:
            done = subprocess.run(["stat", "-f", "-c", "%T", self.options["run_dir"]], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, universal_newlines=True)
        except OSError:
            return True
        return done.stdout.strip() not in ("ext2/ext3", "xfs", "btrfs", "tmpfs", "overlayfs", "zfs")

    def cancel_submitted(self, output):
        """For a doctor that is stopped while sbatch works: the job may be in the queue already, and run."""
        self.number = number_of(output)
        if self.number:
            self.cancel()

    def cancel(self):
        subprocess.run(["scancel", self.number], stderr=subprocess.DEVNULL)
        self.clean_up()

    def clean_up(self):
        """What the job itself removes, unless it is killed; and its log."""
        deadline = time.monotonic() + CLEAN_LIMIT
        while self.fields().get("JobState") in ("RUNNING", "COMPLETING") and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for path in glob.glob(os.path.join(glob.escape(self.options["run_dir"]), ".doctor-%s-*" % self.number)):
            shutil.rmtree(path, ignore_errors=True)
        try:
            os.unlink(self.log)
        except OSError:
            pass


class JobEnded(JobFailed):
    """The job ran, but its end is missing."""


def nodes_without(options, sbatch):
    """Which nodes do not have the run directory, asked by srun from here: for a batch host that cannot even write its log.
    {node: text}, or None if this cannot be asked either."""
    command = ["srun", "--job-name=anyorder-doctor", "--mpi=none", "--chdir=/", "--immediate=60",
               "--nodes=%d" % options["nodes"], "--ntasks=%d" % options["nodes"], "--ntasks-per-node=1"] + sbatch + [
                   "sh", "-c", "if [ -w \"$1\" ]; then echo \"@ok $SLURMD_NODENAME\"; else echo \"@no $SLURMD_NODENAME\"; fi",
                   "sh", options["run_dir"]]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              universal_newlines=True, timeout=120)
    except subprocess.TimeoutExpired:
        return None
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("@")]
    return {row[1]: "" if row[0] == "@ok" else "'%s' is not there, or not writable" % options["run_dir"] for row in rows} or None
