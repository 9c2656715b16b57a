"""Runs that are killed at random moments and must end as if nothing had happened."""
import time

from disturbed_run import DisturbedRun, choose
from programs import STATE_LOG, STEPS, Failure, StateLog, await_gone, await_true, json_lines, kill, processes, trained_steps

ALL = ("anyorder", "mpirun", "anyorder-train", "anyorder-ckptd")
# What dies at once, and how often it is chosen.
TARGETS = {"one trainer": 5, "all trainers": 4, "service": 4, "launcher": 3, "mpirun": 1, "everything": 4, "all trainers after STAGED": 3}
# When: after some time (start-up, data, anything), at a step, in a phase of a save, in the last
# checkpoint, right after the kill before.
MOMENTS = {"time": 6, "step": 4, "save": 5, "last checkpoint": 2, "at once": 2}


class Kill:
    def __init__(self, random):
        self.target = choose(random, TARGETS)
        self.moment = choose(random, MOMENTS)
        if self.target == "all trainers after STAGED":
            self.moment = "save"
        self.seconds = random.uniform(0, 2.5)
        self.step_ahead = random.randint(1, STEPS // 2)
        self.state = random.choice(["COPYING", "STAGED", "WRITING", "DURABLE", "COMMITTED"])
        self.delay = random.choice([0, 0, random.uniform(0, 0.003), random.uniform(0, 0.05)])
        self.victim = random.random()

    def __str__(self):
        detail = {"time": "%.2f s" % self.seconds, "step": "+%d" % self.step_ahead, "save": self.state}.get(self.moment, "")
        return "%s (%s %s)" % (self.target, self.moment, detail)


class KilledRun(DisturbedRun):
    most_ranks = 4

    def __init__(self, programs, directory, random, tally):
        super().__init__(programs, directory, random, tally, random.choice([2, 2, 1000]))
        self.settings = ["checkpoint.every=%d" % random.randint(3, 12), "checkpoint.keep_last=%d" % self.keep_last]
        self.kills = [Kill(random) for _ in range(random.randint(2, 4))]
        self.kills_since_commit = 0
        self.must_commit = []

    def disturb(self):
        self.start()
        for planned in self.kills:
            if not self.deliver(planned):
                break
        await_true(lambda: not self.is_running(), "the end of the run")

    def deliver(self, planned):
        """False once the run is finished and nothing is left to kill."""
        if not self.await_moment(planned):
            return False
        found = processes(self.run)
        trainers = sorted(found.get("anyorder-train", []))
        victims = {
            "one trainer": trainers[int(planned.victim * len(trainers)):][:1],
            "all trainers": trainers,
            "all trainers after STAGED": trainers,
            "service": found.get("anyorder-ckptd", []),
            "mpirun": found.get("mpirun", []),
            "launcher": [self.launch.pid],
            "everything": [self.launch.pid] + sum((found.get(name, []) for name in ALL[1:]), []),
        }[planned.target]
        was_committed = self.staged is not None and self.staged["generation"] in self.committed_generations()
        hit = kill(victims)
        self.note("killed %s: processes %s of %d ranks" % (planned, victims, self.launch.ranks))
        if hit == 0:
            self.note("nothing was there to be killed")
            return True
        self.tally[planned.target] += 1
        self.tally["at moment: " + planned.moment] += 1
        self.kills_since_commit += 1
        if planned.target == "all trainers after STAGED" and self.staged is not None:
            self.must_commit.append(self.staged)
            self.tally["STAGED, not yet COMMITTED when all trainers died"] += not was_committed
        if planned.target in ("service", "everything"):
            # What it had not committed yet dies with it.
            self.must_commit = [r for r in self.must_commit if r["generation"] in self.committed_generations()]
        if planned.target in ("launcher", "everything"):
            self.launch.wait()
            if self.random.random() < 0.5:
                # With everything dead, what is visible now is what a power switch would leave to
                # the next start, and it must load.
                await_gone(self.run, ("anyorder-train", "mpirun"))
            self.start()
        return True

    def await_moment(self, planned):
        """Until the moment has come and the victims exist. False: the run is finished."""
        saves = StateLog(self.run)
        started, first_step = time.monotonic(), trained_steps(self.run)
        state = "STAGED" if planned.target == "all trainers after STAGED" else planned.state
        self.staged = None
        while True:
            if not self.is_running():
                return False
            passed = time.monotonic() - started
            records = saves.new_records()
            if any(r["state"] == "COMMITTED" for r in records):
                self.kills_since_commit = 0
            if planned.moment == "at once":
                break
            if planned.moment == "time" and passed >= planned.seconds:
                break
            if planned.moment == "step" and trained_steps(self.run) >= min(first_step + planned.step_ahead, STEPS - 1):
                break
            hits = [r for r in records if r["state"] == state]
            if planned.moment == "save" and hits:
                self.staged = hits[-1]
                break
            if planned.moment == "last checkpoint" and (trained_steps(self.run) == STEPS or any(r["step"] == STEPS for r in records)):
                break
            if passed > 120:
                raise Failure("waited in vain for %s" % planned)
            time.sleep(0.002)
        if planned.target != "all trainers after STAGED":
            time.sleep(planned.delay)
        needed = {"one trainer": "anyorder-train", "all trainers": "anyorder-train", "service": "anyorder-ckptd", "mpirun": "mpirun"}
        while planned.target in needed and needed[planned.target] not in processes(self.run):
            if not self.is_running():
                return False
            time.sleep(0.002)
        return self.is_running()

    def is_running(self):
        """Whether the run still is to be finished; starts it again where a person would have to."""
        status = self.launch.poll()
        if status is None:
            return True
        if status == 93 and self.kills_since_commit >= 3:
            # Three starts killed without a commit look like a crash loop, rightly.
            self.tally["crash loops"] += 1
            self.kills_since_commit = 0
            self.start()
            return True
        if status != 0:
            raise Failure("the launch ended with exit status %d" % status)
        return False

    def more_faults(self):
        """Saves that all ranks had staged when all trainers, and nothing else, were killed."""
        committed = self.committed_generations()
        return ["step %d was STAGED, all trainers were killed, and it was not COMMITTED" % r["step"]
                for r in self.must_commit if r["generation"] not in committed]

    def committed_generations(self):
        return {r["generation"] for r in json_lines(self.run / STATE_LOG) if r["state"] == "COMMITTED"}
