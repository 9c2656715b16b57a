"""Findings about the run directory's file system: doctor_verdicts.py's second half.

The checkpoint service needs of it (ckpt/PROTOCOL.md): that a rename shows all or nothing, that what was synced is there,
that a file which exists is not created twice, and that other nodes see changes before its time limits are over.
"""
from doctor_verdicts import (FAIL, LEASE_SECONDS, PASS, VOTE_SECONDS, WARN, answers, finding, group, seconds)

UNSEEN = "not within 75 s"


def shared(fact, options):
    why = "ledger, votes and checkpoints of all nodes lie in one directory"
    if fact.get("error"):
        return [finding("shared directory", FAIL, "%s: cannot create files: %s" % (fact["node"], fact["error"]), why,
                        "create '%s' with write permission for you on a file system that every node mounts" % options["run_dir"])]
    bad = {node: fact["errors"].get(node) or "does not see what %s wrote (%s)" % (fact["node"], UNSEEN)
           for node, delay in fact["delays"].items() if delay is None}
    torn = {node: "saw half a file of %s" % fact["node"] for node in fact["incomplete"]}
    text = group(dict(torn, **bad))
    if text:
        return [finding("shared directory", FAIL, text, why,
                        "use a directory on a file system that every node mounts (NFS, Lustre, GPFS, ...), at one path")]
    return [finding("shared directory", PASS, "a new file is seen by all nodes after at most %s" % seconds(
        max(fact["delays"].values(), default=0.0)), why)]


# what -> (check, why, fix)
CHANGES = {
    "listed": ("directory cache", "old files are found by listing: retention, the newest checkpoint at a start",
               "a shorter directory cache: acdirmax=5 (or lookupcache=positive) in the NFS mount's options"),
    "removed": ("removal seen", "a lease that was given back should be gone for the next owner",
                "a shorter attribute cache: acregmax=5 in the NFS mount's options"),
    "renamed": ("rename seen", "a checkpoint of several nodes is committed by votes and one rename, and every node waits for it "
                "(%d s at most)" % VOTE_SECONDS, "lookupcache=positive, or acdirmax=5, in the NFS mount's options"),
    "mapped": ("memory map", "the heartbeats of ranks; they only serve the report of a rank that hangs",
               "nothing: hang reports may lack the phase of ranks on other nodes"),
}


def seen(fact, options):
    """How long other nodes need to see a change of the directory."""
    check, why, fix = CHANGES[fact["what"]]
    if fact.get("error"):
        return [finding(check, FAIL, "%s: %s" % (fact["node"], fact["error"]), why, fix)]
    if fact["incomplete"]:
        return [finding(check, FAIL, "%s saw the new name before all that it stands for" % ", ".join(fact["incomplete"]), why,
                        "use another file system: rename is not atomic between nodes here")]
    late = {node: fact["errors"].get(node) or UNSEEN.replace("75", "15" if fact["what"] == "mapped" else "75")
            for node, delay in fact["delays"].items() if delay is None}
    only_reports = fact["what"] == "mapped"
    if late:
        return [finding(check, WARN if only_reports else FAIL, group(late), why, fix)]
    slowest = max(fact["delays"].values(), default=0.0)
    slow = slowest > (10.0 if only_reports else 2.0)
    return [finding(check, WARN if slow else PASS, "after at most " + seconds(slowest), why, fix)]


def lease(fact, options):
    """A file that is replaced by renames, as the lease is every 5 s: never missing, never half, and seen in time."""
    why = "a claimant on another node takes a lease over that does not change for %d s; it is renewed every %d s" % (
        LEASE_SECONDS, LEASE_SECONDS / 3)
    fix = "a shorter attribute cache (acregmax=3 in the NFS mount's options), or another file system"
    if fact.get("error"):
        return [finding("atomic replace", FAIL, fact["error"], why, fix)]
    broken, late, delays = {}, {}, []
    for node, result in fact["nodes"].items():
        words = ["%d of %d reads %s" % (result[key], result["reads"], text) for key, text in (
            ("missing", "found no file"), ("torn", "found half a file"), ("backwards", "found an older one again"))
            if result.get(key)]
        if result.get("error"):
            words = [result["error"]]
        broken[node] = ", ".join(words)
        if not result.get("last") and not result.get("error"):
            late[node] = "the last change " + UNSEEN
        if result.get("delay") is not None:
            delays.append(result["delay"])
    stale = sum(result.get("stale", 0) for result in fact["nodes"].values())
    if group(broken):
        return [finding("atomic replace", FAIL, group(broken), why, "use another file system: rename is not atomic between nodes here")]
    slowest = max(delays, default=0.0)
    # Renewed every third: seen later than two thirds, the file stands still for a whole lifetime.
    if late or slowest > LEASE_SECONDS * 2 / 3:
        return [finding("atomic replace", FAIL, group(late) or "seen after " + seconds(slowest), why, fix)]
    level = WARN if slowest > LEASE_SECONDS / 5 or stale else PASS
    return [finding("atomic replace", level, "40 replacements, none missing or torn, the last seen after %s%s" % (
        seconds(slowest), "; ESTALE %d times" % stale if stale else ""), why, fix)]


def exclusive(fact, options):
    winners = fact["winners"]
    wrong = sum(count != 1 for count in winners)
    why = "a file that must have one creator: attempts, votes, leases"
    fix = "use another file system (NFS before version 3 is known for this)"
    if fact["errors"]:
        return [finding("exclusive create", FAIL, group(fact["errors"]), why, fix)]
    if wrong:
        return [finding("exclusive create", FAIL, "%d of %d names were created by %d nodes at once" % (
            wrong, len(winners), max(winners)), why, fix)]
    return [finding("exclusive create", PASS, "%d names, one creator each" % len(winners), why)]


def lock(fact, options):
    """Not used in training, because it fails on some network file systems; `anyorder prep` locks its output with flock."""
    kind, mine = fact["kind"], fact["leader"]
    why = "training needs no locks; two 'anyorder prep' on one output are kept apart by flock" if kind == "flock" else \
        "training needs no locks; HDF5 tools of others may"
    both = [node for node, answer in fact["nodes"].items() if answer.get("ok") is True]
    if "error" in mine:
        text = "no locks: " + mine["error"]
    elif both:
        text = "%s got a lock that another node holds" % ", ".join(both)
    else:
        return [finding("lock (%s)" % kind, PASS, "a lock of one node keeps the others out", why)]
    return [finding("lock (%s)" % kind, WARN, text, why, "start one 'anyorder prep' on an output at a time (NFS: local_lock=none; "
                    "Lustre: mount option flock)")]


def disk(fact, options):
    failed = {node: answer["error"] for node, answer in fact["nodes"].items() if "error" in answer}
    why_sync = "a checkpoint counts once fdatasync and fsync of its directory return"
    if failed:
        return [finding("sync", FAIL, group(failed), why_sync, "this file system cannot hold checkpoints: choose another")]
    found = answers(fact["nodes"])
    syncs = sorted(value for answer in found.values() for value in answer["sync"])
    if not syncs:
        return [finding("sync", FAIL, "no node could write to the run directory", why_sync, "see 'shared directory'")]
    middle, longest = syncs[len(syncs) // 2], syncs[-1]
    directory = max(answer["directory_sync"] for answer in found.values())
    result = [finding("sync", WARN if longest > 1.0 else PASS, "fdatasync of 4 KiB: median %s, longest %s; directory %s" % (
        seconds(middle), seconds(longest), seconds(directory)), why_sync,
                      "expect a commit to take tens of these; a stop must leave time for it (sbatch --signal=B:USR1@SECONDS)")]
    rates = {node: 32.0 / max(answer["write"], 1e-6) for node, answer in found.items()}
    slowest = min(rates, key=rates.get)
    slow = rates[slowest] < 50.0
    total = options["checkpoint_bytes"] / float(1 << 20)
    estimate = "; a checkpoint of %.0f MiB takes about %.0f s" % (total, total / options["nodes"] / rates[slowest]) if total else ""
    result.append(finding("write speed", WARN if slow else PASS, "32 MiB with fdatasync from every node at once: slowest %s, %.0f MiB/s%s"
                          % (slowest, rates[slowest], estimate), "all nodes write their share of a checkpoint at once, and a stop waits for it",
                          "raise checkpoint.every, and the seconds of --signal"))
    direct = group({node: answer["direct"] for node, answer in found.items()})
    result.append(finding("O_DIRECT", WARN if direct else PASS, direct + ": the page cache is used instead" if direct else "works",
                          "checkpoints go past the page cache, which the trainer's data needs", "nothing: it is only slower"))
    allocate = {node: answer["fallocate"] for node, answer in found.items()
                if answer["fallocate"] not in ("", "EOPNOTSUPP", "ENOTSUP", "EINVAL")}
    result.append(finding("fallocate", FAIL if allocate else PASS, group(allocate) or "space is reserved, or the system says it cannot",
                          "a full disk is found out before a byte is written", "free some space; look at your quota"))
    return result
