"""What can be seen from the login node: tools, their versions, Slurm's configuration, partitions.

Collecting (run commands) and judging (pure functions of their output) are apart, as for the job's
facts.
"""
import os
import re
import shutil
import subprocess

from doctor_verdicts import FAIL, PASS, WARN, finding

# --overlap, which lets the checkpoint service run next to the ranks, came with this release.
OLDEST_SLURM = (20, 11)
# As launcher/start/open_mpi.cc has it.
OLDEST_OPEN_MPI, NEWEST_OPEN_MPI = (4, 1), 5
# Exit statuses of our programs that must not make Slurm start the job again, or hold it
# (launcher/README.md).
FINAL = {0, 64, 65, 93}


def run(command):
    """Status and output of a command; status 127 if it is not there, 124 if it takes too long."""
    if shutil.which(command[0]) is None:
        return 127, ""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="surrogateescape", timeout=30)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return 124, "no answer in 30 s"


def collect(programs):
    """Outputs by name, as the judges below want them. `programs`: the directory of ours."""
    commands = {"sbatch": "sbatch --version", "srun": "srun --version",
                "scontrol": "scontrol --version", "mpirun": "mpirun --version",
                "ompi_info": "ompi_info", "mpi_list": "srun --mpi=list",
                "config": "scontrol show config", "partitions": "scontrol -o show partition"}
    outputs = {name: run(command.split()) for name, command in commands.items()}
    paths = [os.path.join(programs, "anyorder" + part) for part in ("", "-prep", "-train", "-ckptd")]
    return dict(outputs, anyorder=run([paths[0], "--version"]), ldd=run(["ldd"] + paths))


def version_of(text):
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0)


def settings(text):
    """`scontrol show config` as a dictionary."""
    return {match.group(1): match.group(2).strip()
            for match in re.finditer(r"^(\S+)\s*=\s*(.*)$", text, re.M)}


def seconds_of(text):
    match = re.match(r"(\d+)\s*(sec|min)?", text or "")
    return int(match.group(1)) * (60 if match.group(2) == "min" else 1) if match else 0


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def tools(site):
    missing = [name for name in ("sbatch", "srun", "scontrol") if site[name][0] == 127]
    broken = [name for name in ("sbatch", "config") if site[name][0] not in (0, 127)]
    why = "anyorder submit and its batch script call them"
    if missing:
        return finding("Slurm tools", FAIL, "not on PATH: " + ", ".join(missing), why,
                       "log in to the cluster's login node or load its Slurm module; without "
                       "Slurm use --local")
    if broken:
        return finding("Slurm tools", FAIL,
                       first_line(site[broken[0]][1]) or "%s fails" % broken[0], why,
                       "ask the administrator: this machine does not reach slurmctld")
    text = first_line(site["sbatch"][1])
    is_old = version_of(text)[:2] < OLDEST_SLURM
    return finding("Slurm tools", FAIL if is_old else PASS, text, why,
                   "Slurm 20.11 or newer is needed, for srun --overlap")


def speaks_pmix(site):
    """Whether the Open MPI on PATH has a PMIx client: from version 5 on it always has. Where
    nothing can be asked, suppose so."""
    is_open_mpi = "Open MPI" in site["mpirun"][1]
    if (is_open_mpi and version_of(site["mpirun"][1])[0] >= 5) or site["ompi_info"][0] != 0:
        return True
    return re.search(r"MCA pmix: (ext|pmix)\d", site["ompi_info"][1]) is not None


def open_mpi(site, starter="mpirun"):
    """`starter`: what starts the ranks. srun needs no mpirun, and no fitting one."""
    status, text = site["mpirun"]
    unfit = FAIL if starter == "mpirun" else WARN
    why = "ranks are linked with Open MPI"
    if status == 127:
        return finding("Open MPI", WARN, "mpirun is not on PATH", why,
                       "load its module (and in RUN-DIR/slurm/environment.sh); with srun only its "
                       "libraries are needed")
    if "Open MPI" not in text:
        return finding("Open MPI", unfit, "mpirun is another MPI's: " + first_line(text), why,
                       "load the module with Open MPI before you submit")
    version = version_of(text)
    seen = "%d.%d.%d, %s PMIx client" % (
        version + ("with a" if speaks_pmix(site) else "without",))
    linked = re.search(r"^MPI: +(Open MPI v(\d+).*)", site["anyorder"][1], re.M)
    if version[:2] < OLDEST_OPEN_MPI or linked and int(linked.group(2)) != version[0]:
        return finding("Open MPI", unfit, "mpirun is of %s; the programs run with %s" % (
            seen, linked.group(1) if linked else "an unknown one"), why,
            "4.1 or newer is needed, and the same major version for both: load the module of the "
            "one that anyorder was built with")
    if version[0] > NEWEST_OPEN_MPI:
        return finding("Open MPI", WARN, seen, why, "it was tried with 4.1 to 5.0 only")
    return finding("Open MPI", PASS, seen, why)


def libraries(site):
    """Whether this machine has what the programs are linked with, as `ldd` tells it."""
    status, text = site["ldd"]
    lacks = ["no " + name for name in re.findall(r"^\s*(\S+) => not found", text, re.M)]
    lacks += ["%s without %s" % (os.path.basename(path), version) for path, version in
              re.findall(r"(\S+): version `(\S+)' not found", text)]
    return finding("libraries", FAIL if lacks else PASS if status == 0 else WARN,
                   ", ".join(sorted(set(lacks))) or
                   ("all that the programs need" if status == 0 else "ldd tells nothing"),
                   "the programs start only where the libraries of the machine that built them are",
                   "install the packages of that machine's release (launcher/package/README.md has "
                   "the versions), build here, or use a bundle")


def choose_flavour(site, wanted):
    """What starts ranks, ("srun", plugin) or ("mpirun", ""), as launcher/slurm/slurm_commands.cc
    chooses; and the finding."""
    words = re.split(r"[\s,:]+", site["mpi_list"][1]) if site["mpi_list"][0] == 0 else []
    versions = [word for word in words if word.startswith("pmix_v")]
    plugin = "pmix" if "pmix" in words else max(versions, default="")
    known = sorted({word for word in words if re.match(r"(pmix(_v\d+)?|pmi2|none)$", word)})
    lacks = "srun has no PMIx (it has: %s)" % (", ".join(known) or "nothing")

    def found(level, seen, fix=""):
        return finding("MPI flavour", level, seen, "ranks that are started by a PMI which their "
                       "MPI does not speak run as N worlds of one", fix)
    if wanted != "mpirun" and plugin:
        if speaks_pmix(site):
            seen = "srun --mpi=%s (srun has: %s)" % (plugin, ", ".join(known))
            return ("srun", plugin), found(PASS, seen)
        return ("srun", plugin), found(FAIL, "srun has PMIx, this Open MPI has no client for it",
                                       "submit with --mpi mpirun")
    if wanted == "srun":
        return ("srun", "pmix"), found(FAIL, lacks, "submit with --mpi mpirun, or ask for Slurm "
                                       "with PMIx")
    if site["mpirun"][0] == 127:
        return ("mpirun", ""), found(FAIL, lacks + " and there is no mpirun",
                                     "load the module with Open MPI")
    if wanted == "mpirun":
        return ("mpirun", ""), found(PASS, "mpirun, as you say")
    return ("mpirun", ""), found(WARN, "mpirun, because " + lacks,
                                 "it works, with daemons of its own on each node; ask the "
                                 "administrator for Slurm with PMIx (srun --mpi=list names it)")


def fence(config, flavour, environment):
    """Slurm's PMIx plugin ends a fence without data too early unless it uses the ring."""
    set_here = environment.get("SLURM_PMIX_FENCE") == "ring"
    found = config.get("PMIxCollFence", "(null)")
    is_good = flavour[0] != "srun" or set_here or found == "ring"
    seen = "not used by mpirun" if flavour[0] != "srun" else \
        "SLURM_PMIX_FENCE=ring is set here" if set_here else \
        "PMIxCollFence is not set, so it is mixed" if found in ("", "(null)") else \
        "PMIxCollFence=%s in mpi.conf" % found
    return finding("PMIx fence", PASS if is_good else WARN, seen,
                   "with 3 nodes and several ranks on each, 5 to 27 % of starts crashed in "
                   "MPI_Init under tree or mixed fences, 0 of 480 under ring (Slurm 22.05, Open "
                   "MPI 4.1.4)",
                   "our runs set SLURM_PMIX_FENCE=ring; for your own srun export it, or ask for "
                   "PMIxCollFence=ring in mpi.conf")


def requeue(config):
    allowed = config.get("JobRequeue", "1") == "1"
    bad = []
    for name in ("RequeueExit", "RequeueExitHold"):
        codes = {int(code) for code in re.findall(r"\d+", config.get(name, ""))}
        unwanted = sorted(codes & (FINAL if name == "RequeueExit" else FINAL | {75}))
        if unwanted:
            bad.append("%s=%s holds our %s" % (name, config[name], ", ".join(map(str, unwanted))))
    return [
        finding("requeue", PASS if allowed else WARN, "JobRequeue=" + config.get("JobRequeue", "?"),
                "a run resumes after preemption, a lost node or its time limit only if its job may "
                "start again",
                "submit asks for it with --requeue, which this site can overrule: see 'job "
                "requeue' below; ask for JobRequeue=1"),
        finding("exit statuses", WARN if bad else PASS,
                "; ".join(bad) or "RequeueExit=%s" % config.get("RequeueExit", "(null)"),
                "0 is done, 64, 65 and 93 must not start again, 75 asks for it (the batch script "
                "requeues itself)", "ask the administrator to take these numbers out")]


def preemption(config, partition):
    mode = partition.get("PreemptMode") or config.get("PreemptMode", "OFF")
    kind = config.get("PreemptType", "preempt/none")
    if kind == "preempt/none" or mode == "OFF":
        seen, is_good = "off (%s)" % kind, True
    else:
        seen, is_good = "PreemptMode=" + mode, "REQUEUE" in mode
    return finding("preemption", PASS if is_good else WARN, seen,
                   "with CANCEL a preempted run must be submitted again by hand; with SUSPEND it "
                   "loses its lease after 15 s",
                   "ask for a partition or QOS with PreemptMode=REQUEUE")


def time_to_stop(config, partition):
    wait = seconds_of(config.get("KillWait"))
    seen = "KillWait=%d s, GraceTime=%d s" % (wait, seconds_of(partition.get("GraceTime")))
    return finding("time to stop", WARN if wait < 30 else PASS, seen,
                   "between TERM and KILL a run must finish a step and save; the ledger says how "
                   "long a stop may take (stop_seconds)",
                   "give it time before TERM with submit --signal-seconds; ask for KillWait=30 or "
                   "more")


def lost_nodes(config):
    timeout = seconds_of(config.get("SlurmdTimeout", "300"))
    return finding("lost nodes", WARN if timeout == 0 or timeout > 600 else PASS,
                   "SlurmdTimeout=%d s" % timeout if timeout else
                   "SlurmdTimeout=0: a dead node is never noticed",
                   "a node that dies is known after about twice this; until then its peers wait",
                   "ask for SlurmdTimeout=300 (Slurm's default) or less")


def find_partition(site, name):
    for line in site["partitions"][1].splitlines():
        row = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if row.get("PartitionName") == name or (name is None and row.get("Default") == "YES"):
            return row
    return {}


def minutes_of(text):
    """[days-]hours:minutes:seconds, or None for no limit."""
    match = re.match(r"(?:(\d+)-)?(\d+):(\d+):(\d+)$", text or "")
    if not match:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def partition_limits(row, options):
    name = options["partition"]
    why = "a job beyond its partition's limits is refused, or waits for ever"
    if not row:
        return finding("partition", FAIL,
                       "no partition '%s'" % name if name else "no default partition", why,
                       "name one with --partition; sinfo -s lists them")
    problems = [] if row.get("State") == "UP" else ["State=" + row.get("State", "?")]
    problems += ["%s=%s, you ask for %d" % (key, row[key], options["nodes"])
                 for key in ("MaxNodes", "TotalNodes")
                 if row.get(key, "").isdigit() and int(row[key]) < options["nodes"]]
    if row.get("DisableRootJobs") == "YES" and os.geteuid() == 0:
        problems.append("DisableRootJobs=YES and you are root")
    longest = minutes_of(row.get("MaxTime"))
    if problems:
        return finding("partition", FAIL, "%s: %s" % (row["PartitionName"], "; ".join(problems)),
                       why, "another --partition, fewer --nodes, or ask the administrator")
    seen = "%s: %s nodes, MaxTime=%s" % (row["PartitionName"], row.get("TotalNodes"),
                                         row.get("MaxTime"))
    is_short = longest is not None and longest < 30
    return finding("partition", WARN if is_short else PASS, seen,
                   "each restart costs seconds to a minute of the job" if is_short else why,
                   "a partition with more time")


def judge(site, options, environment):
    """All findings of the login node, and the flavour for the job."""
    findings = [tools(site)]
    if findings[0]["level"] == FAIL:
        return findings, None
    config = settings(site["config"][1])
    row = find_partition(site, options["partition"])
    flavour, chosen = choose_flavour(site, options["mpi"])
    return findings + [open_mpi(site, flavour[0]), libraries(site), chosen, fence(config, flavour, environment)] + \
        requeue(config) + [preemption(config, row), time_to_stop(config, row), lost_nodes(config),
                           partition_limits(row, options)], flavour
