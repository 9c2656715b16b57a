"""Loads every checkpoint at the moment it appears or is reported COMMITTED, while the run goes on."""
import re
import threading

from programs import StateLog


class CheckpointWatch(threading.Thread):
    """`keeps_all`: the run retires nothing, so that no checkpoint may be missing when it is looked at."""

    def __init__(self, programs, run, keeps_all):
        super().__init__(daemon=True)
        self.programs, self.run_dir, self.keeps_all = programs, run, keeps_all
        self.log = StateLog(run)
        self.faults, self.looked_at, self.seen = [], 0, set()
        self.closing = threading.Event()
        self.start()

    def run(self):
        while not self.closing.wait(0.005):
            self.look()

    def close(self):
        """What was found; looks a last time."""
        self.closing.set()
        self.join()
        self.look()
        return self.faults

    def visible(self):
        directory = self.run_dir / "checkpoints"
        if not directory.exists():
            return set()
        return {int(p.name[5:]) for p in directory.iterdir() if re.fullmatch(r"step-\d+", p.name)}

    def look(self):
        reported = {r["step"] for r in self.log.new_records() if r["state"] == "COMMITTED"}
        visible = self.visible()
        for step in sorted(reported | (visible - self.seen)):
            self.load(step)
        self.seen |= visible

    def load(self, step):
        status, report = self.programs.verify(self.run_dir / "checkpoints" / ("step-%09d" % step))
        self.looked_at += 1
        if status == 0:
            return
        now = self.visible()
        is_retired = not self.keeps_all and step not in now and len([s for s in now if s > step]) >= 2
        if not is_retired:
            self.faults.append("checkpoint of step %d does not load: exit status %d: %s" % (step, status, report.strip()))
