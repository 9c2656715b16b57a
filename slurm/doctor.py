"""Checks a Slurm cluster before the first job: what was seen, why it matters and what to do.

`anyorder doctor` becomes this program (launcher/slurm/doctor.cc) and hands over its options as one
JSON object. It looks at Slurm's configuration, then runs one short job of the shape that you will
submit and removes what it wrote. Python's standard library only (3.6 or newer): the nodes of a
cluster have little else.
"""
import argparse
import errno
import json
import os
import re
import signal
import sys
import tempfile

sys.dont_write_bytecode = True  # the directory may belong to somebody else
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import doctor_job
import doctor_site
import doctor_verdicts
from doctor_verdicts import FAIL, PASS, WARN

# Facts that doctor_verdicts judges, by functions of their names, in the order of the report.
JUDGED = ("agents", "shared", "renamed", "exclusive", "lock", "space", "clocks", "gpus", "mpi",
          "signal", "job", "never")
# Facts of the run directory.
OF_RUN_DIRECTORY = ("shared", "renamed", "exclusive", "lock", "space")


class Stopped(Exception):
    """TERM or HUP came."""


def mpi_library(directory):
    """The libmpi that anyorder-train is linked with; the usual name where that cannot be told."""
    _, text = doctor_site.run(["ldd", os.path.join(directory, "anyorder-train")])
    found = re.search(r"^\s*libmpi\.so\S* => (/\S+)", text, re.M)
    return found.group(1) if found else "libmpi.so.40"


def job_options(options, flavour):
    ranks, nodes = options.ranks_per_node, options.nodes
    world = nodes * ranks
    starter, plugin = flavour
    # --ntasks as well as --ntasks-per-node: without it srun takes the job's SLURM_NTASKS.
    if starter == "srun":
        mpi = ["srun", "--overlap", "--kill-on-bad-exit=1", "--cpu-bind=none", "--mpi=" + plugin,
               "--nodes=%d" % nodes, "--ntasks=%d" % world, "--ntasks-per-node=%d" % ranks]
    else:
        mpi = ["mpirun", "-np", str(world), "--map-by", "ppr:%d:node" % ranks, "--bind-to", "none",
               "--oversubscribe"]
    agent = [] if options.local else ["srun", "--overlap", "--mpi=none", "--nodes=%d" % nodes,
                                      "--ntasks=%d" % nodes, "--ntasks-per-node=1"]
    return {"run_dir": options.run_dir, "nodes": nodes, "ranks_per_node": ranks,
            "gpus": options.gpus_per_node, "mpi_command": mpi,
            "mpi_library": mpi_library(options.bin), "agent_command": agent,
            "checkpoint_bytes": int(options.checkpoint_gib * (1 << 30)),
            "environment": options.environment or os.path.join(
                options.run_dir, "slurm", "environment.sh"),
            "is_local": options.local,
            "signal": not options.local and "SLURM_JOB_ID" not in os.environ}


def judge_facts(facts, options, left_out):
    return [entry for name in JUDGED if name not in left_out for fact in facts
            if fact["fact"] == name for entry in getattr(doctor_verdicts, name)(fact, options)]


def run_job(options, job, sbatch):
    """Facts of the job, or of what came of it; and what kept it from its end, or None."""
    try:
        if options.local or "SLURM_JOB_ID" in os.environ:
            return doctor_job.run_here(job), None
        return doctor_job.Job(job, sbatch, options.wait).facts(), None
    except doctor_job.JobFailed as error:
        facts = error.facts
        if error.has_run:
            # Its log lies in the run directory: where that is absent, this explains the rest.
            short = [word for word in sbatch if not word.startswith("--time")] + ["--time=2"]
            bad = doctor_job.nodes_without(job, short)
            if bad:
                facts.append({"fact": "shared", "delays": dict.fromkeys(bad), "errors": bad,
                              "incomplete": []})
        return facts, str(error)


def show(findings):
    width = max(len(entry["check"]) for entry in findings)
    for entry in findings:
        print("%s  %s  %s (%s)%s" % (
            entry["level"], entry["check"].ljust(width), entry["seen"], entry["why"],
            " -> " + entry["fix"] if entry["fix"] else ""))
    counts = [sum(entry["level"] == level for entry in findings) for level in (PASS, WARN, FAIL)]
    print("%d checks: %d pass, %d warn, %d fail" % (len(findings), *counts))


def make_run_directory(path):
    """The directories that had to be made, outermost first, to take them away again."""
    made = []
    head = path
    while not os.path.isdir(head):
        made.insert(0, head)
        head = os.path.dirname(head)
    os.makedirs(path, exist_ok=True)
    return made


def record_nodes(run_dir, facts):
    """What agents found, for `launch` and `submit` (core/train/FORMAT.md); not among other files."""
    directory, found = os.path.join(run_dir, ".launch"), {}
    for fact in facts:
        for name, answer in fact["nodes"].items() if fact["fact"] in ("agents", "gpus") else ():
            found.setdefault(name, {}).update((answer.get("ok") or answer).get("inventory", {}))
    others = [name for name in os.listdir(run_dir) if not name.startswith(("slurm", "submit"))]
    if not found or (others and ".launch" not in others):
        return
    path = os.path.join(directory, "nodes.json")
    try:
        with open(path, encoding="utf-8") as file:
            nodes = json.load(file)
        found = dict(nodes, **{name: dict(nodes.get(name, {}), **found[name]) for name in found})
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # none yet, or damaged
    try:
        os.makedirs(directory, exist_ok=True)
        with open(path + ".doctor", "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
        os.replace(path + ".doctor", path)
    except OSError as error:
        doctor_job.say("'%s': %s" % (path, error.strerror))


def stop(number, _):
    # Once: what is cancelled and removed because of it takes a moment, which a second one must not
    # cut off.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Stopped("ended by signal %d" % number)


def main(words, programs, run_dir, environment):
    options = argparse.Namespace(bin=programs, run_dir=run_dir, environment=environment,
                                 **json.loads(words))
    sys.stdout.reconfigure(errors="surrogateescape")  # paths may be any bytes
    # Something must be written somewhere; findings about this directory are left out.
    options.has_run_dir = bool(options.run_dir)
    made = []
    if not options.has_run_dir:
        options.run_dir = tempfile.mkdtemp(prefix="anyorder-doctor-")
        made = [options.run_dir]
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, stop)
    try:
        made += make_run_directory(options.run_dir)
        if not os.access(options.run_dir, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        print("doctor: cannot write to --run-dir '%s': %s; choose a directory that you may write "
              "to" % (options.run_dir, error.strerror), file=sys.stderr)
        return 74
    try:
        return check(options, options.sbatch)
    except (KeyboardInterrupt, Stopped) as reason:
        try:
            print("doctor: %s; its job was cancelled" % (str(reason) or "interrupted"),
                  file=sys.stderr)
        except OSError:
            pass  # after HUP there may be no terminal
        return 74
    finally:
        for path in reversed(made):
            try:
                os.rmdir(path)
            except OSError:
                pass  # somebody put something there meanwhile


def check(options, sbatch):
    site = doctor_site.collect(options.bin)
    findings = [doctor_site.open_mpi(site), doctor_site.libraries(site)]
    flavour = ("mpirun", "")
    if not options.local:
        values = {"partition": options.partition or None, "nodes": options.nodes, "mpi": options.mpi}
        findings, flavour = doctor_site.judge(site, values, os.environ)
    facts, failure = [], None
    if flavour is None:
        failure = "without Slurm's tools no job can be run; --local checks this machine alone"
    else:
        extra = ["--time=%d" % options.time]
        for name in ("partition", "account"):
            if getattr(options, name):
                extra.append("--%s=%s" % (name, getattr(options, name)))
        if options.gpus_per_node:
            extra.append("--gpus-per-node=%d" % options.gpus_per_node)
        job = job_options(options, flavour)
        facts, failure = run_job(options, job, extra + sbatch)
        if options.has_run_dir:
            record_nodes(options.run_dir, facts)
        findings += judge_facts(facts, job, () if options.has_run_dir else OF_RUN_DIRECTORY)
    if options.json:
        print(json.dumps({"findings": findings, "facts": facts, "failure": failure}, indent=1))
    else:
        show(findings)
    if failure:
        print("doctor: " + failure, file=sys.stderr)
    # A check that fails is more to the point than a job that ended because of it.
    has_failed = any(entry["level"] == FAIL for entry in findings)
    return 65 if has_failed and facts else 74 if failure else 65 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
