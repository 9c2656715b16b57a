"""From facts to findings: what is good, what is bad, why it matters and what to do about it.

Pure functions, so that tests can hold them against facts that no test machine can produce. A
finding is a dictionary with `check`, `level`, `seen`, `why`, `fix`.
"""

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"

MIB, GIB = 1 << 20, 1 << 30
# MUNGE's default time to live of a credential.
MUNGE_SECONDS = 300.0
# checkpoint.keep_last unless the configuration says otherwise.
KEPT = 2


def finding(check, level, seen, why, fix=""):
    return {"check": check, "level": level, "seen": seen, "why": why,
            "fix": fix if level != PASS else ""}


def group(texts):
    """{node: text} as "n1, n2: text; n3: other"; nodes with one text together, "" left out."""
    nodes = {}
    for node, text in texts.items():
        if text:
            nodes.setdefault(text, []).append(node)
    return "; ".join("%s: %s" % (shorten(names), text) for text, names in nodes.items())


def shorten(names):
    names = sorted(names)
    if len(names) <= 4:
        return ", ".join(names)
    return "%s and %d more" % (", ".join(names[:3]), len(names) - 3)


def size(number):
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if number >= unit:
            return "%.3g %s" % (number / unit, name)
    return "%d KiB" % (number >> 10)


def seconds(value):
    return "%.3g s" % value if value >= 1 else "%.3g ms" % (value * 1e3)


# ---- the job


def never(fact, options):
    return [finding("queue", FAIL, "job %s: %s" % (fact["number"], fact["reason"]),
                    "waiting does not end this, so the job was cancelled; a run of this shape "
                    "would wait for ever",
                    "fewer --nodes, a shorter --time, another --partition, --account or --qos "
                    "(sinfo -s; scontrol show partition; sacctmgr show assoc user=$USER); "
                    "man squeue, JOB REASON CODES, explains the reason")]


def job(fact, options):
    findings = []
    if fact["requeue"] is not None:
        findings.append(finding(
            "job requeue", PASS if fact["requeue"] == "1" else FAIL,
            "job %s has Requeue=%s" % (fact["number"], fact["requeue"]),
            "this job asked for --requeue, as runs do",
            "ask the administrator what takes --requeue away (a job_submit plugin or QOS?)"))
    return findings + [finding("queue", PASS, "started after %.0f s" % fact["waited"],
                               "each restart waits as long again")]


def signal(fact, options):
    took = seconds(fact["seconds"])
    seen = "the batch shell got USR1 after %s" % took if fact["arrived"] else \
        "the batch shell did not get USR1 in %s: %s" % (took, fact["output"] or "no message")
    return [finding("signals", PASS if fact["arrived"] else FAIL, seen,
                    "--signal=B:USR1@S is how a run learns that its time is nearly over",
                    "ask the administrator what keeps 'scancel --batch --signal=USR1' from "
                    "reaching your job")]


# ---- nodes


def agents(fact, options):
    """One task a node, in a step next to the ranks, as the checkpoint service has."""
    nodes, expected = fact["nodes"], fact["expected"]
    why = "the checkpoint service runs as a second step next to the ranks, one task a node"
    seen = "%d of %d nodes answer" % (len(nodes), expected)
    if len(nodes) < expected:
        errors = "; ".join(line.strip() for line in fact["errors"][:3]) or "no message"
        return [finding("service step", FAIL, "%s: %s" % (seen, errors), why,
                        "run 'srun --overlap --mpi=none --ntasks-per-node=1 python3 -V' in an "
                        "allocation; the missing nodes lack python3, cannot start a task, or "
                        "cannot reach the batch host")]
    pythons = ", ".join(sorted({hello["python"] for hello in nodes.values()}))
    ranks = options["ranks_per_node"]
    few = {node: "%d cores for %d ranks" % (hello["cores"], ranks)
           for node, hello in nodes.items() if hello["cores"] < ranks}
    # Each node stages its share twice; training's own memory comes on top.
    need = 2 * options["checkpoint_bytes"] // options["nodes"]
    little = {node: size(hello["memory"]) for node, hello in nodes.items()
              if hello["memory"] < need}
    return [
        finding("service step", PASS, "%s (Python %s)" % (seen, pythons), why),
        finding("cores", WARN if few else PASS, group(few) or "at least %d for %d ranks" % (
            min(hello["cores"] for hello in nodes.values()), ranks),
            "ranks that share a core wait for each other in every collective",
            "fewer --ranks-per-node, or -- --cpus-per-task=N"),
        finding("memory", FAIL if little else PASS, group(little) or "at least %s available" % size(
            min(hello["memory"] for hello in nodes.values())),
            "each node stages its share of a checkpoint twice%s, in addition to training" % (
                ": %s" % size(need) if need else ""),
            "more nodes, a smaller train.global_batch_size or a smaller model.mem_len")]


def gpus(fact, options):
    wanted, bad = options["gpus"], {}
    for node, answer in fact["nodes"].items():
        seen = answer.get("ok")
        if seen is None:
            bad[node] = answer["error"]
        elif not seen["listed"]:
            bad[node] = "no GPU listed: " + seen["error"]
        elif seen["listed"] < wanted:
            bad[node] = "nvidia-smi lists %d" % seen["listed"]
        elif seen["visible"] is not None or not options["is_local"]:
            # Without Slurm nobody sets it, and all are visible.
            visible = [entry for entry in (seen["visible"] or "").split(",") if entry]
            bad[node] = "" if len(visible) == wanted else \
                "CUDA_VISIBLE_DEVICES=%s" % (seen["visible"] or "")
    text = group(bad)
    return [finding("GPUs", FAIL if text else PASS, text or "%d on every node" % wanted,
                    "this many are asked for on each node",
                    "ask the administrator for GresTypes=gpu, gres.conf and the driver on these "
                    "nodes (nvidia-smi -L in a job)")]


def clocks(fact, options):
    """The difference of two clocks is certain only outside both nodes' bounds."""
    bounds = fact["bounds"]
    why = "ledger and metrics carry the time of day, and MUNGE refuses what is %d s apart" \
        % MUNGE_SECONDS
    if len(bounds) < 2:
        return [finding("clocks", PASS, "one node", why)]
    ahead = max(bounds, key=lambda node: bounds[node][0])
    behind = min(bounds, key=lambda node: bounds[node][1])
    certain = max(0.0, bounds[ahead][0] - bounds[behind][1])
    possible = max(high for _, high in bounds.values()) - min(low for low, _ in bounds.values())
    level = FAIL if certain > MUNGE_SECONDS / 5 else WARN if certain > 1.0 else PASS
    seen = "apart by at most %s" % seconds(possible) if level == PASS else \
        "%s is ahead of %s by at least %s" % (ahead, behind, seconds(certain))
    return [finding("clocks", level, seen, why,
                    "ask the administrator for chrony or ntp on these nodes")]


# ---- the run directory: what the checkpoint service needs of it (ckpt/PROTOCOL.md)


def unseen(fact):
    """Why nodes did not see a change, by node."""
    late = "does not see what another node wrote within 75 s"
    return {node: fact["errors"].get(node) or late
            for node, delay in fact["delays"].items() if delay is None}


def shared(fact, options):
    why = "ledger, votes and checkpoints of all nodes lie in one directory"
    if fact.get("error"):
        return [finding("shared directory", FAIL,
                        "%s: cannot create files: %s" % (fact["node"], fact["error"]), why,
                        "create '%s' with write permission for you on a file system that every "
                        "node mounts" % options["run_dir"])]
    torn = {node: "saw half a file of %s" % fact["node"] for node in fact["incomplete"]}
    text = group(dict(torn, **unseen(fact)))
    slowest = max((delay for delay in fact["delays"].values() if delay is not None), default=0.0)
    return [finding("shared directory", FAIL if text else PASS,
                    text or "a new file is seen by all nodes after at most %s" % seconds(slowest),
                    why, "use a directory on a file system that every node mounts (NFS, Lustre, "
                    "GPFS, ...), at one path")]


def renamed(fact, options):
    why = "a checkpoint is committed by one rename, and every node waits until it sees that"
    fix = "lookupcache=positive, or acdirmax=5, in the NFS mount's options"
    text = fact.get("error") or group(unseen(fact))
    if fact["incomplete"]:
        text = "%s saw the new name before all its files" % ", ".join(fact["incomplete"])
        fix = "use another file system: rename is not atomic between nodes here"
    if text:
        return [finding("rename", FAIL, text, why, fix)]
    slowest = max(fact["delays"].values(), default=0.0)
    return [finding("rename", WARN if slowest > 2.0 else PASS,
                    "seen by all nodes after at most " + seconds(slowest), why, fix)]


def exclusive(fact, options):
    winners = fact["winners"]
    wrong = sum(count != 1 for count in winners)
    text = group(fact["errors"])
    if wrong and not text:
        text = "%d of %d names were created by %d nodes at once" % (
            wrong, len(winners), max(winners))
    return [finding("exclusive create", FAIL if text else PASS,
                    text or "%d names, one creator each" % len(winners),
                    "attempts, votes and leases are files that must have one creator",
                    "use another file system (NFS before version 3 cannot do this)")]


def lock(fact, options):
    both = [node for node, answer in fact["nodes"].items() if answer.get("ok") is True]
    text = "no locks: " + fact["leader"]["error"] if "error" in fact["leader"] else \
        "%s got a lock that another node holds" % ", ".join(both) if both else ""
    return [finding("lock (flock)", WARN if text else PASS,
                    text or "a lock of one node keeps the others out",
                    "training needs no locks; submit and prep keep a second one out by flock",
                    "start one 'anyorder prep' on an output at a time (NFS: local_lock=none; "
                    "Lustre: mount option flock)")]


def space(fact, options):
    need = (KEPT + 1) * options["checkpoint_bytes"]
    return [finding("free space", FAIL if fact["free"] < max(need, 64 * MIB) else PASS,
                    size(fact["free"]) + " free",
                    "two checkpoints are kept and a third is being written" + (
                        ": %s" % size(need) if need else
                        "; how large: ckpt/PROTOCOL.md, Space, and --checkpoint-gib"),
                    "free some space or choose another directory; check your quota as well, which "
                    "this number may not include")]


# ---- the start of ranks


def mpi(fact, options):
    world = options["nodes"] * options["ranks_per_node"]
    why = "this is how ranks start: %s" % " ".join(options["mpi_command"])
    if fact.get("error"):
        return [finding("MPI start", FAIL, fact["error"], why,
                        "load the module with Open MPI, or give --mpi srun")]
    starts = fact["starts"]
    for i, start in enumerate(starts):
        problem = mpi_problem(start, world)
        if problem:
            return [finding("MPI start", FAIL, "start %d of %d: %s" % (
                i + 1, len(starts), problem[0]), why, problem[1])]
    sums = [float(line.split()[4]) for start in starts for line in start["lines"]
            if line.startswith("MPI sum")]
    return [finding("MPI start", PASS,
                    "%d starts of %d ranks, at most %s each; 1 MiB summed over all in %s" % (
                        len(starts), world, seconds(max(start["seconds"] for start in starts)),
                        seconds(max(sums, default=0.0))), why)]


def mpi_problem(start, world):
    """What is wrong with one start and what to do, or None."""
    sizes = [int(line.split()[3]) for line in start["lines"] if line.startswith("MPI world")]
    hangs = sorted({line.split(" ", 2)[2] for line in start["lines"]
                    if line.startswith("MPI hangs")})
    wrong = [line for line in start["lines"]
             if line.startswith("MPI sum") and "right" not in line]
    if sizes and max(sizes) == 1 and world > 1:
        return ("%d promised, but each rank is alone in its world (singletons)" % world,
                "this Open MPI and srun do not speak the same PMI: submit with --mpi mpirun, or "
                "ask for Slurm with PMIx")
    if sizes and set(sizes) != {world}:
        return ("%d promised, but MPI sees %s" % (world, sorted(set(sizes))),
                "compare with srun -n and the partition's limits")
    if hangs or start["status"] is None:
        return ("hangs in " + (hangs[0] if hangs else
                               "an unknown call; %d ranks came up" % len(sizes)),
                "often a network that two nodes seem to share but that connects nothing (docker0), "
                "or a firewall: name one that connects all nodes (ip -4 addr), "
                "export OMPI_MCA_btl_tcp_if_include=NETWORK OMPI_MCA_oob_tcp_if_include=NETWORK")
    if start["status"] != 0 or len(sizes) != world or wrong:
        output = " / ".join(start["output"][:3])[:300]
        return ("status %s, %d of %d ranks came up%s: %s" % (
            start["status"], len(sizes), world, ", a wrong sum" if wrong else "",
            output or "no message"),
                "look for the text in slurm/README.md, 'Messages'; export SLURM_PMIX_FENCE=ring if "
                "ranks die with signal 11")
    return None
