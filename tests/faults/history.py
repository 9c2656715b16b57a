"""Judges what a run wrote about itself against what may have happened: history.py RUN_DIR REFERENCE_DIR STEPS.

The ledger (starts, where each began, commits), the metrics (one line a step), the service's log of saves and the checkpoints
are written by different processes at different times; only a run that lost nothing makes all of them agree.
"""
import json
import pathlib
import re
import sys

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def lines_of(path):
    return path.read_bytes().splitlines() if path.exists() else []


class History:
    def __init__(self, run, reference, steps, is_finished=True):
        self.run, self.reference, self.steps, self.is_finished = pathlib.Path(run), pathlib.Path(reference), steps, is_finished
        self.faults = []

    def check(self):
        """All contradictions found, as sentences; empty if there are none."""
        self.read_ledger()
        if not self.faults:
            self.check_starts()
            self.check_saves()
            self.check_trained()
        self.check_metrics()
        return self.faults

    def require(self, condition, what):
        if not condition:
            self.faults.append(what)

    def read_ledger(self):
        self.ledger = []
        for number, line in enumerate(lines_of(self.run / "ledger.jsonl"), 1):
            body, seal, crc = line.rpartition(b',"crc32c":"')
            ok = bool(seal) and crc == b'%08x"}' % crc32c(body)
            self.require(ok, "ledger line %d: its checksum is wrong: %r" % (number, line[:120]))
            if ok:
                self.ledger.append(json.loads(line))
        created = [r for r in self.ledger if r["event"] == "created"]
        self.require(len(created) == 1 and self.ledger[0] == created[0], "the ledger does not begin with its one 'created'")

    def records(self, event):
        return [r for r in self.ledger if r["event"] == event]

    def check_starts(self):
        numbers = [r["attempt"] for r in self.records("start")]
        # A launch killed between its claim and its first record leaves a gap.
        self.require(numbers == sorted(set(numbers)), "attempts do not rise: %s" % numbers)
        train = self.records("train")
        began = [r["attempt"] for r in train]
        self.require(began == sorted(set(began)) and set(began) <= set(numbers), "ranks began in attempts %s" % began)
        self.require(len({r["run_id"] for r in self.ledger if "run_id" in r}) == 1, "more than one run_id in the ledger")
        for earlier, later in zip(train, train[1:]):
            self.require(earlier["step"] <= later["step"], "attempt %d begins at step %d, but %d began at %d"
                         % (later["attempt"], later["step"], earlier["attempt"], earlier["step"]))
        self.began_at = {r["attempt"]: r["step"] for r in train}
        self.began_time = {r["attempt"]: r["time"] for r in train}

    def check_saves(self):
        """Every start goes on from the newest commit, and no step is committed twice."""
        saves = [json.loads(line) for line in lines_of(self.run / "ckptd.node00.jsonl")]
        committed = [s for s in saves if s["state"] in ("COMMITTED", "RECOVERED")]
        steps = [s["step"] for s in committed]
        self.require(len(steps) == len(set(steps)), "a step was committed twice: %s" % steps)
        for attempt, step in self.began_at.items():
            newest = max([s["step"] for s in committed if s["time"] < self.began_time[attempt] and s["attempt"] < attempt],
                         default=0)
            self.require(step >= newest, "attempt %d begins at step %d although step %d was COMMITTED" % (attempt, step, newest))
        # RECOVERED: the next service committed what a dead one had voted for.
        order = ["COPYING", "STAGED", "WRITING", "DURABLE", "RECOVERED", "COMMITTED", "VERIFIED"]
        by_generation = {}
        for save in saves:
            by_generation.setdefault(save["generation"], []).append(save["state"])
        for generation, states in by_generation.items():
            ranks = [order.index(s) if s in order else len(order) for s in states]
            self.require(ranks == sorted(set(ranks)) and not {"RECOVERED", "COMMITTED"} <= set(states), "generation %d went through %s" % (generation, states))
            self.require("DAMAGED" not in states, "generation %d was read back damaged" % generation)
        claimed = {r["step"] for r in self.records("commit")}
        # The service logs before it tells the ranks, so that even a killed one has.
        self.require(claimed <= set(steps), "the ledger has commits that the service never reported: %s" % sorted(claimed - set(steps)))
        names = [p.name for p in (self.run / "checkpoints").iterdir()] if (self.run / "checkpoints").exists() else []
        self.require(not any(n.endswith(".quarantine") for n in names), "a checkpoint was found bad: %s" % names)
        if self.is_finished:
            visible = [int(n[5:]) for n in names if re.fullmatch(r"step-\d+", n)]
            self.require(max(visible, default=-1) == self.steps, "the newest checkpoint is of step %s" % max(visible, default=None))

    def check_trained(self):
        """Samples of steps (first, last]: within a start without gap or overlap, from where it began."""
        reached = dict(self.began_at)
        for record in self.records("trained"):
            attempt = record["attempt"]
            self.require(reached.get(attempt) == record["first_step"] < record["last_step"],
                         "attempt %d trained (%d, %d] after step %s"
                         % (attempt, record["first_step"], record["last_step"], reached.get(attempt)))
            reached[attempt] = record["last_step"]
        starts = sorted(self.began_at)
        for attempt, following in zip(starts, starts[1:]):
            stops = [r for r in self.records("stop") if r["attempt"] == attempt and r["exit_status"] == 75]
            for stop in stops:
                self.require(self.began_at[following] == stop["step"], "attempt %d was asked to stop at step %d, but %d begins at %d"
                             % (attempt, stop["step"], following, self.began_at[following]))
        if self.is_finished:
            self.require(max(reached.values(), default=0) == self.steps, "the ledger's samples end at step %s" % max(reached.values(), default=0))

    def check_metrics(self):
        """One line a step; each from the last start that trained it; losses and samples those of the undisturbed run."""
        try:
            mine = [json.loads(line) for line in lines_of(self.run / "metrics.jsonl")]
            redone = [json.loads(line) for line in lines_of(self.run / "metrics.redone.jsonl")]
        except ValueError as error:
            self.faults.append("a line of the metrics is no JSON: %s" % error)
            return
        wanted = {r["step"]: r for r in map(json.loads, lines_of(self.reference / "metrics.jsonl"))}
        steps = [r["step"] for r in mine]
        expected = list(range(1, (self.steps if self.is_finished else len(steps)) + 1))
        self.require(steps == expected, "the metrics have steps %s" % gaps(steps, expected))
        numbers = [r["attempt"] for r in mine]
        self.require(numbers == sorted(numbers), "attempts in the metrics go back")
        if not self.faults:
            starts = sorted(self.began_at)
            for record in mine:
                number = record["attempt"]
                later = [self.began_at[n] for n in starts if n > number]
                self.require(self.began_at.get(number, self.steps) < record["step"] <= min(later, default=self.steps),
                             "step %d was not attempt %d's to train" % (record["step"], number))
        for record in mine + redone:
            for key in ("loss", "lr", "grad_norm", "targets", "skipped", "samples"):
                if record["step"] in wanted:
                    same = record.get(key) == wanted[record["step"]].get(key)
                    self.require(same, "step %d has %s %s, the undisturbed run %s"
                                 % (record["step"], key, record.get(key), wanted[record["step"]].get(key)))


def gaps(steps, expected):
    missing = sorted(set(expected) - set(steps))
    twice = sorted({s for s in steps if steps.count(s) > 1})
    return "missing %s, more than once %s, of %d" % (missing[:10], twice[:10], len(expected))


if __name__ == "__main__":
    found = History(sys.argv[1], sys.argv[2], int(sys.argv[3])).check()
    print("\n".join(found) or "consistent")
    sys.exit(1 if found else 0)
