"""A run that somebody disturbs, and how it is watched and judged."""
import re
import shutil
import threading
import time

import history
from drawn_settings import draw
from programs import LAYERS, MICROBATCHES, STEPS, Failure, Launch, StateLog, kill


def choose(random, weights):
    return random.choices(list(weights), list(weights.values()))[0]


class CheckpointWatch(threading.Thread):
    """Loads every checkpoint at the moment it appears or is reported COMMITTED, while the run goes
    on. `keeps_all`: the run retires nothing, so that none may be missing when it is looked at."""

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


class DisturbedRun:
    """One run in `directory`, which is removed if all went well. `disturb` calls `start`, once or
    more often, and ends when the run is finished. Starts have 1 to `most_ranks` ranks."""

    def __init__(self, programs, directory, random, tally, keep_last):
        self.programs, self.random, self.tally, self.keep_last = programs, random, tally, keep_last
        self.run, self.log = directory / "run", directory / "log"

    def note(self, text):
        with open(self.log, "a") as out:
            out.write("# %.3f %s\n" % (time.time(), text))

    def start(self):
        """Launches it with settings of its own, which the launcher's own restarts keep."""
        ranks = self.random.randint(1, self.most_ranks)
        drawn = draw(self.random, ranks, MICROBATCHES, LAYERS)
        self.note("drew for %d ranks: %s" % (ranks, " ".join(drawn)))
        self.tally.update("drawn: " + setting for setting in drawn)
        self.launch = Launch(self.programs, self.run, ranks, self.settings + drawn, self.log)

    def play(self):
        """Raises Failure at the first thing that is wrong."""
        self.run.parent.mkdir(parents=True)
        watch = CheckpointWatch(self.programs, self.run, self.keep_last == 1000)
        try:
            self.disturb()
        finally:
            faults = watch.close()
            if self.launch.poll() is None:
                kill([self.launch.pid])
                self.launch.wait()
        self.tally["checkpoints loaded"] += watch.looked_at
        faults += history.History(self.run, self.programs.reference, STEPS).check()
        faults += self.programs.audit(self.run, STEPS) + self.more_faults()
        digests = {self.programs.state_digest(r, STEPS) for r in (self.run, self.programs.reference)}
        if len(digests) > 1:
            faults.append("the run ends in another state than the undisturbed run")
        if faults:
            raise Failure("\n".join(faults))
        shutil.rmtree(self.run.parent)

    def more_faults(self):
        return []
