"""Judges what a run wrote about itself against what may have happened: history.py RUN_DIR REFERENCE_DIR STEPS.

The ledger (starts, where each began, commits), the metrics (one line a step), the service's log of
saves and the checkpoints are written by different processes at different times; only a run that
lost nothing makes all of them agree. Which start trained which samples, and the ledger's checksums,
are left to `anyorder inspect RUN --ledger` (Programs.audit).
"""
import pathlib
import re
import sys

from programs import STATE_LOG, json_lines


class History:
    def __init__(self, run, reference, steps):
        self.run, self.reference, self.steps = pathlib.Path(run), pathlib.Path(reference), steps
        self.ledger = json_lines(self.run / "ledger.jsonl")
        self.faults = []

    def check(self):
        """All contradictions found, as sentences; empty if there are none."""
        created = [i for i, r in enumerate(self.ledger) if r["event"] == "created"]
        self.require(created == [0], "the ledger does not begin with its one 'created'")
        self.check_starts()
        self.check_saves()
        self.check_metrics()
        return self.faults

    def require(self, condition, what):
        if not condition:
            self.faults.append(what)

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
        for attempt, following in zip(began, began[1:]):
            for stop in self.records("stop"):
                if stop["attempt"] == attempt and stop["exit_status"] == 75:
                    self.require(self.began_at[following] == stop["step"],
                                 "attempt %d was asked to stop at step %d, but %d begins at %d"
                                 % (attempt, stop["step"], following, self.began_at[following]))

    def check_saves(self):
        """Every start goes on from the newest commit, and no step is committed twice."""
        saves = json_lines(self.run / STATE_LOG)
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
        visible = [int(n[5:]) for n in names if re.fullmatch(r"step-\d+", n)]
        self.require(max(visible, default=-1) == self.steps, "the newest checkpoint is of step %s" % max(visible, default=None))

    def check_metrics(self):
        """One line a step, in order; of lost steps, too, those of the undisturbed run."""
        mine, redone = (json_lines(self.run / f"metrics{kind}.jsonl") for kind in ("", ".redone"))
        steps = [r["step"] for r in mine]
        self.require(steps == list(range(1, self.steps + 1)), "the metrics have steps %s" % steps)
        wanted = {r["step"]: r for r in json_lines(self.reference / "metrics.jsonl")}
        for record in mine + redone:
            for key in ("loss", "lr", "grad_norm", "targets", "skipped", "samples"):
                expected = wanted[record["step"]].get(key)
                self.require(record.get(key) == expected,
                             "step %d has %s %s, the undisturbed run %s"
                             % (record["step"], key, record.get(key), expected))


if __name__ == "__main__":
    found = History(sys.argv[1], sys.argv[2], int(sys.argv[3])).check()
    print("\n".join(found) or "consistent")
    sys.exit(1 if found else 0)
