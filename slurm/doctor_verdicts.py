"""From facts to findings: what is good, what is bad, why it matters and what to do about it.

Pure functions, so that tests can hold them against facts that no test machine can produce. A finding is a dictionary with
`check`, `level`, `seen`, `why`, `fix`. Limits come from the programs where they have one; the place is named beside each.
"""

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"

MIB, GIB = 1 << 20, 1 << 30
# btl_vader_segment_size of Open MPI 4, `ompi_info --param btl vader --level 9`: what a rank takes
# of /dev/shm.
SEGMENT_BYTES = 4 * MIB
# launcher/start/launch.cc: a lease is renewed every third of this, and taken over after this
# without a change.
LEASE_SECONDS = 15.0
# ckpt/PROTOCOL.md, "Write order": how long a node waits for the votes of the others.
VOTE_SECONDS = 300.0
# MUNGE's default time to live of a credential.
MUNGE_SECONDS = 300.0
# checkpoint.keep_last unless the configuration says otherwise.
KEPT = 2


def finding(check, level, seen, why, fix=""):
    return {"check": check, "level": level, "seen": seen, "why": why, "fix": fix if level != PASS else ""}


def group(texts):
    """{node: text} as "n1, n2: text; n3: other"; nodes with one text together. "" texts are left out."""
    nodes = {}
    for node, text in texts.items():
        if text:
            nodes.setdefault(text, []).append(node)
    return "; ".join("%s: %s" % (shorten(names), text) for text, names in nodes.items())


def shorten(names):
    names = sorted(names)
    return ", ".join(names) if len(names) <= 4 else "%s and %d more" % (", ".join(names[:3]), len(names) - 3)


def answers(nodes):
    """Answers that are no errors, by node."""
    return {node: answer["ok"] for node, answer in nodes.items() if "ok" in answer}


def size(number):
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if number >= unit:
            return "%.3g %s" % (number / unit, name)
    return "%d KiB" % (number >> 10)


def seconds(value):
    return "%.3g s" % value if value >= 1 else "%.3g ms" % (value * 1e3)


# ---- the queue

# Reason -> what to do about it; the first that fits.
WAYS_OUT = (
    ("PartitionTimeLimit", "a shorter --time, or a --partition with more time (sinfo -s)"),
    ("Partition", "fewer --nodes, a shorter --time or another --partition (sinfo -s; scontrol show partition)"),
    ("BadConstraints", "take out the --constraint or the resources after -- that no node has (sinfo -o '%N %f %G')"),
    ("Dependency", "look at the job that this one was to follow, and leave out --dependency"),
    ("Reservation", "another --reservation (scontrol show reservation), or none"),
    ("MaxMem", "a smaller --mem or --mem-per-cpu after --"),
    ("", "another --account, or --qos after --, or ask for less; sacctmgr show assoc user=$USER, sacctmgr show qos"),
)


def never_starts(fact, options):
    return [finding("queue", FAIL, "job %s: %s" % (fact["number"], fact["reason"]),
                    "waiting does not end this, so the job was cancelled; a run of this shape would wait for ever",
                    next(fix for start, fix in WAYS_OUT if fact["reason"].startswith(start)))]


# ---- nodes


def nodes_answer(fact, options):
    """`agents`: the step that has one task a node beside the trainers, as the checkpoint service's has."""
    got, expected = len(fact["nodes"]), fact["expected"]
    why = "the checkpoint service runs as a second step beside the trainers, one task a node"
    if got == expected:
        pythons = sorted({hello["python"] for hello in fact["nodes"].values()})
        return [finding("service step", PASS, "%d of %d nodes answer (Python %s)" % (got, expected, ", ".join(pythons)), why)]
    errors = "; ".join(line.strip() for line in fact["errors"][:3]) or "no message"
    return [finding("service step", FAIL, "%d of %d nodes answer: %s" % (got, expected, errors), why,
                    "run 'srun --overlap --mpi=none --ntasks-per-node=1 python3 -V' in an allocation; the missing nodes lack "
                    "python3, cannot start a task, or cannot reach the batch host")]


def unanswered(facts):
    """Nodes that did not answer a question: what was not looked at is not fine."""
    names = next((set(fact["nodes"]) for fact in facts if fact["fact"] == "agents"), set())
    texts = {}
    for fact in facts:
        if fact["fact"] in ("limits", "machine", "places", "programs", "names"):
            for name in sorted(names):
                answer = fact["nodes"].get(name, {"error": "no answer in time"})
                if "error" in answer:
                    texts.setdefault(name, "%s: %s" % (fact["fact"], answer["error"]))
    if not texts:
        return []
    return [finding("answers", WARN, group(texts), "the lines above leave these nodes out", "run doctor again; if it repeats, look at the node")]


def limit_text(value):
    return "unlimited" if value < 0 else str(value)


def limits(fact, options):
    found = answers(fact["nodes"])
    world = options["nodes"] * options["ranks_per_node"]
    # A rank may hold a connection to each other rank, beside its own files; the service two
    # descriptors a rank.
    need_files = 2 * world + 128
    result = []

    def check(name, key, level_of, why, fix):
        levels = {node: level_of(answer[key][0]) for node, answer in found.items()}
        worst = max(levels.values(), key=(PASS, WARN, FAIL).index, default=PASS)
        texts = {node: limit_text(answer[key][0]) + (" (hard limit %s)" % limit_text(answer[key][1]))
                 for node, answer in found.items() if worst == PASS or levels[node] == worst}
        result.append(finding(name, worst, group(texts), why, fix))

    def below(fail, warn):
        return lambda value: PASS if value < 0 else FAIL if value < fail else WARN if value < warn else PASS

    slurm = "; Slurm hands on the limits of the shell that submits (PropagateResourceLimits), up to slurmd's hard limit"
    check("open files", "open_files", below(need_files, 1024),
          "%d ranks need up to %d descriptors each" % (world, need_files),
          "ulimit -n 65536 before you submit, or LimitNOFILE in slurmd's unit" + slurm)
    check("processes", "processes", below(16 * options["ranks_per_node"] + 256, 4096),
          "ranks, their threads and Open MPI's helpers all count", "ulimit -u 65536 before you submit" + slurm)
    check("stack", "stack", below(MIB, 8 * MIB), "compute threads take their stack size from it",
          "ulimit -s 8192 before you submit" + slurm)
    locked = {node: answer["memlock"] for node, answer in found.items() if answer["memlock"][0] >= 0}
    fast = options.get("locks_memory", False)
    level = WARN if locked and fast else PASS
    result.append(finding("locked memory", level, group({node: limit_text(answer["memlock"][0]) + " bytes"
                                                         for node, answer in found.items()}),
                          "InfiniBand and GPU transfers pin memory; shared memory and TCP do not",
                          "LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"))
    return result


def places(fact, options):
    found = answers(fact["nodes"])
    ranks, gpus = options["ranks_per_node"], options["gpus"]
    need = ranks * SEGMENT_BYTES
    want = max(4 * need, GIB if gpus else 0)
    result = []
    sizes = {node: place["shm"].get("free", 0) for node, place in found.items()}
    level = FAIL if any(value < need for value in sizes.values()) else \
        WARN if any(value < want for value in sizes.values()) else PASS
    limit = need if level == FAIL else want
    result.append(finding(
        "/dev/shm", level,
        group({node: size(value) + " free" for node, value in sizes.items() if level == PASS or value < limit}),
        "Open MPI's ranks of one node talk through it, %s each; staged checkpoints do not lie in it but count as memory"
        % size(SEGMENT_BYTES) + ("; NCCL uses it too" if gpus else ""),
        "a larger /dev/shm on those nodes (mount -o remount,size=...), for containers --shm-size or a bind of the node's own"))
    bad, free = {}, []
    for node, place in found.items():
        tmp = place["tmp"]
        free.append(tmp.get("free", 0))
        bad[node] = "%s does not exist" % tmp["path"] if not tmp["exists"] else \
            "%s is not writable" % tmp["path"] if not tmp["writable"] else \
            "%s has %s free" % (tmp["path"], size(tmp["free"])) if tmp["free"] < 256 * MIB else ""
    text = group(bad)
    result.append(finding("temporary directory", FAIL if text else PASS,
                          text or "at least %s free on every node" % size(min(free, default=0)),
                          "Open MPI and the service's socket need a directory of the node itself",
                          "unset TMPDIR before you submit, or set it to a directory that every node has"))
    return result + run_directory(found, options)


def run_directory(found, options):
    """Space and kind of the run directory; that it is shared is for `shared`."""
    runs = {node: place["run"] for node, place in found.items() if place["run"]["exists"]}
    if not runs:
        return []
    first = next(iter(runs.values()))
    kinds = sorted({run["type"] for run in runs.values()})
    memory = [kind for kind in kinds if kind in ("tmpfs", "ramfs")]
    result = [finding("run directory", WARN if memory else PASS, "file system %s" % ", ".join(kinds),
                      "checkpoints must survive the nodes" if memory else "what the checks below say depends on it",
                      "use a directory on a disk: what lies in memory is gone after a reboot")]
    files = [run["files"] for run in runs.values() if run["total_files"]]
    need = (KEPT + 1) * options["checkpoint_bytes"]
    level = FAIL if first["free"] < max(need, 64 * MIB) or min(files, default=10000) < 1000 else PASS
    result.append(finding(
        "free space", level, "%s%s free" % (size(first["free"]), ", %d inodes" % min(files) if files else ""),
        "two checkpoints are kept and a third is being written" + (": %s" % size(need) if need else
                                                                   "; how large: ckpt/PROTOCOL.md, Space, and --checkpoint-gib"),
        "free some space or choose another directory; look at your quota as well, which this number may not know"))
    return result


def programs(fact, options):
    found = answers(fact["nodes"])
    names = options["programs"]
    if not names:
        return [finding("programs", WARN, "no programs were found", "nodes could differ in what they would run",
                        "name their directory with --bin")]
    result, missing, libraries, of_prep = [], {}, {}, {}
    for node, answer in found.items():
        absent = [name for name in names if "error" in answer.get(name, {"error": ""})]
        missing[node] = "%s: %s" % (absent[0], answer[absent[0]]["error"]) if absent else ""
        lacks = {name: set(value.get("missing", [])) for name, value in answer.items()}
        of_run = set().union(*(found for name, found in lacks.items() if not name.endswith("-prep")))
        libraries[node] = ", ".join(sorted(of_run))
        of_prep[node] = ", ".join(sorted(set().union(*lacks.values()) - of_run))
    different = {}
    for name in names:
        digests = {node: answer[name]["sha256"] for node, answer in found.items() if "sha256" in answer.get(name, {})}
        # The login node's is what the user means to run.
        wanted = options.get("digests", {}).get(name) or most_common(digests.values())
        for node, digest in digests.items():
            if digest != wanted:
                different[node] = "%s is %s, not %s" % (name, digest, wanted)
    text = group(missing)
    result.append(finding("programs", FAIL if text else PASS, text or "%d programs on every node" % len(names),
                          "every node starts them from the same path",
                          "build or unpack on a file system that all nodes mount, or name the right place with --bin"))
    text = group(different)
    result.append(finding("same programs", FAIL if text else PASS, text or "digests equal on every node and here",
                          "ranks of different builds speak different protocols and round differently",
                          "install one build everywhere; after a rebuild on NFS wait a minute for the nodes' caches"))
    text, level = group(libraries), FAIL
    if not text and group(of_prep):
        text, level = group(of_prep) + " (anyorder-prep alone wants it)", WARN
    result.append(finding("libraries", level if text else PASS, text or "none missing on any node",
                          "a program without its libraries does not start, be it a rank or prep --slurm",
                          "install them on the nodes, load their module in RUN-DIR/slurm/environment.sh, or use a container"))
    return result


def most_common(values):
    values = sorted(values)
    return max(values, key=values.count) if values else None


# kernels/cpu: vector_kernels.cc and attention.cc choose among these when the program starts.
AVX2 = {"avx2", "fma", "bmi2"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


def instruction_set(flags):
    flags = set(flags)
    if AVX512 <= flags:
        return "AVX-512 with bf16" if "avx512_bf16" in flags else "AVX-512"
    return "AVX2" if AVX2 <= flags else "baseline"


def machine(fact, options):
    found = answers(fact["nodes"])
    sets = {node: instruction_set(answer["flags"]) for node, answer in found.items()}
    flags = {tuple(answer["flags"]) for answer in found.values()}
    models = {answer["model"] for answer in found.values()}
    why = "bits do not depend on the number of ranks, but may on the instruction set: oneDNN and our kernels choose by it"
    if len(flags) > 1:
        texts = sets if len(set(sets.values())) > 1 else {node: " ".join(answer["flags"]) for node, answer in found.items()}
        cpu = finding("processors", WARN, "they differ: " + group(texts), why,
                      "ask for one kind of node (-- --constraint=FEATURE after submit's options) if two runs must end in the same "
                      "digest; bf16 needs AVX-512 on every node. Training and resuming work on a mixture")
    elif len(models) > 1:
        cpu = finding("processors", WARN, "one instruction set (%s), but %d models: %s" % (
            next(iter(sets.values())), len(models), ", ".join(sorted(models))), why,
                      "nobody has measured whether these models give the same bits; ask for one model with --constraint if it matters")
    else:
        cpu = finding("processors", PASS, "%s, %s" % (", ".join(sorted(models)), ", ".join(sorted(set(sets.values())))), why)
    ranks = options["ranks_per_node"]
    few = {node: "%d cores for %d ranks" % (answer["cores"], ranks) for node, answer in found.items()
           if answer["cores"] < ranks}
    # Each node stages its share twice; training's own memory comes on top, which nobody here knows.
    need = 2 * options["checkpoint_bytes"] // options["nodes"]
    little = {node: size(answer["memory"]) for node, answer in found.items() if answer["memory"] < need}
    memory = finding("memory", FAIL if little else PASS, group(little) or "at least %s available on every node" % size(
        min((answer["memory"] for answer in found.values()), default=0)),
        "each node stages its share of a checkpoint twice%s, beside training itself" % (": %s" % size(need) if need else ""),
        "more nodes, fewer lanes or a smaller model.mem_len")
    return [cpu, memory, finding("cores", WARN if few else PASS, group(few) or "at least %d for %d ranks on every node" % (
        min((answer["cores"] for answer in found.values()), default=0), ranks),
        "ranks that share a core wait for each other in every collective", "fewer --ranks-per-node, or -- --cpus-per-task=N")]


def gpus(fact, options):
    wanted, bad = options["gpus"], {}
    for node, answer in fact["nodes"].items():
        seen = answer.get("ok")
        if seen is None:
            bad[node] = answer["error"]
            continue
        # Without Slurm nobody sets it, and all are visible.
        chosen = seen["visible"] is not None or not options["is_local"]
        visible = [entry for entry in (seen["visible"] or "").split(",") if entry] if chosen else [""] * wanted
        bad[node] = "no GPU listed: " + seen["error"] if not seen["listed"] else \
            "nvidia-smi lists %d" % seen["listed"] if seen["listed"] < wanted else \
            "CUDA_VISIBLE_DEVICES=%s" % (seen["visible"] or "") if len(visible) != wanted else ""
    text = group(bad)
    return [finding("GPUs", FAIL if text else PASS, text or "%d on every node" % wanted,
                    "this many are asked for on each node",
                    "ask the administrator for GresTypes=gpu, gres.conf and the driver on these nodes (nvidia-smi -L in a job)")]


# ---- clocks and network


def clocks(fact, options):
    """Bounds of each clock's lead over the batch host's. The difference of two nodes is certain only outside both bounds."""
    bounds = fact["bounds"]
    if len(bounds) < 2:
        return [finding("clocks", PASS, "one node", "times of several nodes stand side by side in the ledger")]
    highest_low = max(bounds, key=lambda node: bounds[node][0])
    lowest_high = min(bounds, key=lambda node: bounds[node][1])
    certain = max(0.0, bounds[highest_low][0] - bounds[lowest_high][1])
    possible = max(high for _, high in bounds.values()) - min(low for low, _ in bounds.values())
    level = FAIL if certain > MUNGE_SECONDS / 5 else WARN if certain > 1.0 else PASS
    seen = "apart by at most %s" % seconds(possible) if level == PASS else \
        "%s is ahead of %s by at least %s" % (highest_low, lowest_high, seconds(certain))
    return [finding("clocks", level, seen,
                    "leases use each node's own steady clock, but ledger and metrics carry the time of day, and MUNGE refuses "
                    "what is %d s apart" % MUNGE_SECONDS, "ask the administrator for chrony or ntp on these nodes")]


def network(fact, options):
    """Which networks connect every pair that was tried, and what only looks like one."""
    names = {}
    for node, entries in fact["interfaces"].items():
        for entry in entries:
            if entry["name"] != "lo":
                names.setdefault(entry["network"], {}).setdefault(node, entry)
    calls = fact["calls"]
    address_network = {(node, entry["address"]): entry["network"]
                       for node, entries in fact["interfaces"].items() for entry in entries}
    good, bad = {}, {}
    for caller, callee, address, error in calls:
        place = address_network.get((callee, address), address)
        (bad if error else good).setdefault(place, []).append("%s to %s at %s: %s" % (caller, callee, address, error))
    everywhere = [net for net in good if net not in bad and len(names.get(net, {})) == len(fact["interfaces"])]
    why = "ranks talk on ports that the kernel chooses; Open MPI alone tries every network and may wait for ever in one that leads nowhere"
    if not everywhere:
        return [no_network(names, calls, bad, why)]
    best = max(everywhere, key=lambda net: fastest(names[net]))
    seen = "%s%s connects all nodes" % (best, speed(next(iter(names[best].values()))))
    setting = "export OMPI_MCA_btl_tcp_if_include=%s OMPI_MCA_oob_tcp_if_include=%s" % (best, best)
    # A bridge of containers has one address on every node: what goes there stays at home.
    traps = sorted(net for net in bad if len(names.get(net, {})) > 1)
    if traps:
        seen += "; %s does not (%s)" % (", ".join(traps), bad[traps[0]][0])
    chosen = fact["chosen"]
    if fact["chosen"] == best or (fact["chosen"] in everywhere and fastest(names[chosen]) == fastest(names[best])):
        return [finding("network", PASS, seen + "; runs take %s; your own mpirun needs: %s" % (chosen, setting.replace(best, chosen)), why)]
    level = WARN if chosen in everywhere or (not chosen and not traps) or chosen not in names else FAIL
    return [finding("network", level, seen + "; runs would take " + (chosen or "all"), why, "before you submit: " + setting)]


def no_network(names, calls, bad, why):
    reached = {(call[0], call[1]) for call in calls if not call[3]}
    if calls and {(call[0], call[1]) for call in calls} == reached:
        return finding("network", WARN, "every node reaches every other, but no one network has them all: " + ", ".join(sorted(names)), why,
                       "name the interface that all have: export OMPI_MCA_btl_tcp_if_include=IFACE")
    worst = next((text for texts in bad.values() for text in texts), "no interface but lo")
    return finding("network", FAIL, "nodes do not reach each other: " + worst, why,
                   "ask the administrator to open TCP between compute nodes (a firewall?), all ports above 1023")


def fastest(entries):
    first = next(iter(entries.values()))
    return (first["infiniband"], first["speed"])


def speed(entry):
    return ", InfiniBand" if entry["infiniband"] else ", %d Mbit/s" % entry["speed"] if entry["speed"] > 0 else ""


def names(fact, options):
    bad = {}
    for node, answer in answers(fact["nodes"]).items():
        for name, addresses in answer.items():
            if isinstance(addresses, str):
                bad[node] = "%s: %s" % (name, addresses)
            elif name != node and all(address.startswith("127.") for address in addresses):
                bad[node] = "%s is %s, this node itself" % (name, addresses[0])
    text = group(bad)
    return [finding("host names", WARN if text else PASS, text or "every node finds the others by name",
                    "mpirun and error messages use them; srun with PMIx does not need them",
                    "ask the administrator for DNS or /etc/hosts with all nodes")]


# ---- the start of ranks


def mpi(fact, options):
    world = options["nodes"] * options["ranks_per_node"]
    why = "this is how trainers start: %s" % " ".join(options["mpi_command"])
    if fact.get("error"):
        return [finding("MPI start", FAIL, fact["error"], why, "load the module with Open MPI, or give --mpi srun")]
    good = []
    for i, start in enumerate(fact["starts"]):
        problem = mpi_problem(start, world)
        if problem:
            seen, fix = problem
            return [finding("MPI start", FAIL, "start %d of %d: %s" % (i + 1, len(fact["starts"]), seen), why, fix)]
        good.append(start)
    sums = [float(line.split()[4]) for start in good for line in start["lines"] if line.startswith("MPI sum")]
    return [finding("MPI start", PASS, "%d starts of %d ranks, at most %s each; 1 MiB summed over all in %s" % (
        len(good), world, seconds(max(start["seconds"] for start in good)), seconds(max(sums, default=0.0))), why)]


def mpi_problem(start, world):
    """What is wrong with one start and what to do, or None."""
    sizes = [int(line.split()[3]) for line in start["lines"] if line.startswith("MPI world")]
    hangs = sorted({line.split(" ", 2)[2] for line in start["lines"] if line.startswith("MPI hangs")})
    wrong = [line for line in start["lines"] if line.startswith("MPI sum") and "right" not in line]
    output = " / ".join(start["output"][:3])[:300]
    if sizes and max(sizes) == 1 and world > 1:
        return ("%d promised, but each rank is alone in its world (singletons)" % world,
                "this Open MPI and srun do not speak the same PMI: submit with --mpi mpirun, or ask for Slurm with PMIx")
    if sizes and set(sizes) != {world}:
        return "%d promised, but MPI sees %s" % (world, sorted(set(sizes))), "compare with srun -n and the partition's limits"
    if hangs or start["status"] is None:
        where = hangs[0] if hangs else "without a word; %d ranks came up" % len(sizes)
        return ("hangs in " + where, "often the network: name one that connects all nodes, "
                "export OMPI_MCA_btl_tcp_if_include=NETWORK (see the line 'network')")
    if start["status"] != 0 or len(sizes) != world or wrong:
        return ("status %s, %d of %d ranks came up%s: %s" % (
            start["status"], len(sizes), world, ", a wrong sum" if wrong else "", output or "no message"),
                "look for the text in slurm/README.md, 'Messages'; export SLURM_PMIX_FENCE=ring if ranks die with signal 11")
    return None


def signal_arrives(fact, options):
    return [finding("signals", PASS if fact["arrived"] else FAIL,
                    "the batch shell got USR1 after %s" % seconds(fact["seconds"]) if fact["arrived"] else
                    "the batch shell did not get USR1 in %s: %s" % (seconds(fact["seconds"]), fact["output"] or "no message"),
                    "--signal=B:USR1@S is how a run learns that its time is nearly over",
                    "ask the administrator what keeps 'scancel --batch --signal=USR1' from reaching your job")]
