"""One run on 4, 2, 3, 1 and 4 ranks reads, and learns, exactly what one rank does. elastic_test.py BIN_DIR WORK_DIR."""
import pathlib
import shutil
import signal
import sys
import time

import history
from programs import Failure, Launch, Programs, json_lines, trained_steps

RANKS = [4, 2, 3, 1, 4]
TOTAL = 3000  # so many that a fast machine is stopped four times before the end
STEPS_EACH = 30


def stop_after(launch, step):
    while trained_steps(launch.run) < step:
        if launch.status() is not None:
            raise Failure("the run on %d ranks ended (status %s) before step %d" % (launch.ranks, launch.status(), step))
        time.sleep(0.002)
    launch.process.send_signal(signal.SIGTERM)
    if launch.wait(60, "SIGTERM") != 75:
        raise Failure("exit status %d after SIGTERM" % launch.status())


def main():
    programs = Programs(sys.argv[1], pathlib.Path(sys.argv[2]) / "elastic")
    shutil.rmtree(programs.work, ignore_errors=True)
    programs.work.mkdir(parents=True)
    programs.prepare()
    settings = ["train.steps=%d" % TOTAL, "train.global_batch_size=8", "checkpoint.every=200"]
    alone, elastic = programs.work / "alone", programs.work / "elastic"
    programs.run(programs.launch_command(alone, 1, settings))
    for i, ranks in enumerate(RANKS):
        launch = Launch(programs, elastic, ranks, settings, programs.work / "log")
        if i + 1 < len(RANKS):
            stop_after(launch, trained_steps(elastic) + STEPS_EACH)
        elif launch.wait(120, "the last part") != 0:
            raise Failure("the last part ended with %d" % launch.status())
    faults = history.History(elastic, alone, TOTAL).check()
    # What both read is what the sampler says, computed without either run.
    faults += programs.audit(alone, TOTAL) + programs.audit(elastic, TOTAL)
    assert not faults, "\n".join(faults)
    digests = [programs.state_digest(run, TOTAL) for run in (elastic, alone)]
    assert digests[0] == digests[1], "another final state"
    ledger = json_lines(elastic / "ledger.jsonl")
    assert [r["ranks"] for r in ledger if r["event"] == "train"] == RANKS
    steps = [r["step"] for r in ledger if r["event"] == "train"]
    print("ranks %s began after steps %s: %d samples, state and losses as on one rank"
          % (RANKS, steps, 8 * TOTAL))


if __name__ == "__main__":
    main()
