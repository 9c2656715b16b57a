"""One run on 4, 2, 3, 1 and 4 ranks reads, and learns, exactly what one rank does. elastic_test.py BIN_DIR WORK_DIR."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import history
from programs import Failure, Launch, Programs, trained_steps

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


def digest(programs, run):
    status, report = programs.verify(run / "checkpoints" / ("step-%09d" % TOTAL))
    assert status == 0, report
    tensors = {t["name"] for t in json.loads(report)["tensors"]}
    assert {"master", "adam_m", "adam_v", "memory"} <= tensors, tensors
    return json.loads(report)["state_digest"]


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
    assert not faults, "\n".join(faults)
    assert digest(programs, elastic) == digest(programs, alone), "another final state"
    # (step, lane, digest of what it read), computed without either run; the steps' sums are what
    # both runs wrote down.
    planned = subprocess.run([programs.bin / "faults.sample_list", elastic / "config.toml", str(TOTAL)], stdout=subprocess.PIPE, check=True, text=True)
    lines = [line.split() for line in planned.stdout.splitlines()]
    for run in (alone, elastic):
        written = [json.loads(line)["samples"] for line in open(run / "metrics.jsonl")]
        assert written == [d for _, lane, d in lines if lane == "all"], "%s read other samples than planned" % run
    each = [d for _, lane, d in lines if lane != "all"]
    assert len(each) == 8 * TOTAL and len(set(each)) == len(each), "two samples have one digest"
    ledger = [json.loads(line) for line in open(elastic / "ledger.jsonl")]
    assert [r["ranks"] for r in ledger if r["event"] == "train"] == RANKS
    steps = [r["step"] for r in ledger if r["event"] == "train"]
    print("ranks %s began after steps %s: %d samples, state and losses as on one rank" % (RANKS, steps, len(each)))


if __name__ == "__main__":
    main()
