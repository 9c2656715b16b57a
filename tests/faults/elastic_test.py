"""One run on 4, 2, 3, 1 and 4 ranks reads, and learns, exactly what one rank does; and the judge
who says so sees damage of each file that it reads. elastic_test.py BIN_DIR WORK_DIR."""
import math
import pathlib
import random
import re
import shutil
import signal
import sys
import time

import history
from drawn_settings import draw
from programs import LAYERS, MICROBATCHES, STATE_LOG, Failure, Launch, Programs, json_lines, trained_steps

RANKS = [4, 2, 3, 1, 4]
TOTAL = 3000  # so many that a fast machine is stopped four times before the end
STEPS_EACH = 30


def edit(path, change):
    lines = path.read_text().splitlines()
    changed = change(lines)
    assert changed != lines, path
    path.write_text("".join(line + "\n" for line in changed))


def replaced(lines, text, pattern, replacement):
    """With a change in the last line that has `text`."""
    last = max(i for i, line in enumerate(lines) if text in line)
    return lines[:last] + [re.sub(pattern, replacement, lines[last])] + lines[last + 1:]


def lose_other_steps(run):
    line = (run / "metrics.jsonl").read_text().splitlines()[59]
    (run / "metrics.redone.jsonl").write_text(line.replace('"loss":', '"loss":1') + "\n")


DAMAGE = {
    "a loss in its last bit": lambda run: edit(
        run / "metrics.jsonl",
        lambda l: replaced(l, '"step":60,', r'"loss":([^,]+),', lambda m: '"loss":%r,' % math.nextafter(float(m[1]), 99))),
    "a lost step that was trained otherwise": lose_other_steps,
    "a start from an older checkpoint": lambda run: edit(
        run / "ledger.jsonl", lambda l: replaced(l, '"event":"train"', r'"step":\d+', '"step":0')),
    "a step committed twice": lambda run: edit(
        run / STATE_LOG, lambda l: l + [line for line in l if '"COMMITTED"' in line]),
    "no last checkpoint": lambda run: shutil.rmtree(run / "checkpoints" / ("step-%09d" % TOTAL)),
}


def expect_damage_seen(programs, sound, reference):
    for name, damage in DAMAGE.items():
        copy = programs.work / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sound, copy, ignore=shutil.ignore_patterns(".ckptd", "tensorboard"))
        damage(copy)
        faults = history.History(copy, reference, TOTAL).check()
        print("%-45s %s" % (name, faults[0] if faults else "NOT SEEN"))
        assert faults, name


def stop_after(launch, step):
    while trained_steps(launch.run) < step:
        if launch.poll() is not None:
            raise Failure("the run on %d ranks ended (status %s) before step %d" % (launch.ranks, launch.poll(), step))
        time.sleep(0.002)
    launch.send_signal(signal.SIGTERM)
    if launch.await_end("SIGTERM") != 75:
        raise Failure("exit status %d after SIGTERM" % launch.poll())


def main():
    programs = Programs(sys.argv[1], pathlib.Path(sys.argv[2]) / "elastic")
    shutil.rmtree(programs.work, ignore_errors=True)
    programs.work.mkdir(parents=True)
    programs.make_dataset()
    settings = ["train.steps=%d" % TOTAL, "checkpoint.every=200"]
    alone, elastic = programs.work / "alone", programs.work / "elastic"
    programs.run(programs.launch_command(alone, 1, settings))
    drawing = random.Random(20)
    for i, ranks in enumerate(RANKS):
        drawn = draw(drawing, ranks, MICROBATCHES, LAYERS)
        launch = Launch(programs, elastic, ranks, settings + drawn, programs.work / "log")
        if i + 1 < len(RANKS):
            stop_after(launch, trained_steps(elastic) + STEPS_EACH)
        elif launch.await_end("the last part") != 0:
            raise Failure("the last part ended with %d" % launch.poll())
    faults = history.History(elastic, alone, TOTAL).check()
    # What both read is what the sampler says, computed without either run.
    faults += programs.audit(alone, TOTAL) + programs.audit(elastic, TOTAL)
    assert not faults, "\n".join(faults)
    digests = [programs.state_digest(run, TOTAL) for run in (elastic, alone)]
    assert digests[0] == digests[1], "another final state"
    expect_damage_seen(programs, elastic, alone)
    ledger = json_lines(elastic / "ledger.jsonl")
    assert [r["ranks"] for r in ledger if r["event"] == "train"] == RANKS
    steps = [r["step"] for r in ledger if r["event"] == "train"]
    print("ranks %s began after steps %s: %d samples, state and losses as on one rank"
          % (RANKS, steps, MICROBATCHES * TOTAL))


if __name__ == "__main__":
    main()
