"""The checker must see what it is there for: a sound history is accepted, each damaged copy of it is not. checker_test.py BIN_DIR WORK_DIR."""
import pathlib
import re
import shutil
import sys
import time

import history
from programs import STATE_LOG, STEPS, Launch, Programs, kill, processes, trained_steps


def edit(path, change):
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))


def last_with(lines, text):
    return max(i for i, line in enumerate(lines) if text in line)


def replaced(lines, i, pattern, replacement):
    changed = re.sub(pattern, replacement, lines[i])
    assert changed != lines[i], lines[i]
    return lines[:i] + [changed] + lines[i + 1:]


# One for each file that the checker reads.
DAMAGE = {
    "a loss in its last digit": lambda run: edit(
        run / "metrics.jsonl",
        lambda l: replaced(l, 60, r'"loss":(\d+\.\d*?)\d,', r'"loss":\g<1>11,')),
    "a lost step that was trained otherwise": lambda run: edit(
        run / "metrics.redone.jsonl", lambda l: replaced(l, 0, r'"loss":', '"loss":1')),
    "a start from an older checkpoint": lambda run: edit(
        run / "ledger.jsonl",
        lambda l: replaced(l, last_with(l, '"event":"train"'), r'"step":\d+', '"step":0')),
    "a step committed twice": lambda run: edit(
        run / STATE_LOG,
        lambda l: replaced(l + l[last_with(l, '"COMMITTED"'):], -1, '"generation":', '"generation":9')),
    "no last checkpoint": lambda run: shutil.rmtree(run / "checkpoints" / ("step-%09d" % STEPS)),
}


def disturbed_run(programs, run):
    """A run with one lost piece of work, so that there is something to get wrong."""
    launch = Launch(programs, run, 2, ["checkpoint.every=50"], run.parent / "log")
    while trained_steps(run) < 60 and launch.status() is None:
        time.sleep(0.002)
    kill(processes(run).get("anyorder-train", [])[:1])
    assert launch.wait(60, "a run with a killed rank") == 0, (run.parent / "log").read_text()


def main():
    programs = Programs(sys.argv[1], pathlib.Path(sys.argv[2]) / "checker")
    shutil.rmtree(programs.work, ignore_errors=True)
    programs.work.mkdir()
    programs.prepare()
    sound = programs.work / "sound"
    disturbed_run(programs, sound)
    judge = lambda run: history.History(run, programs.reference, STEPS).check()
    assert judge(sound) == [], judge(sound)
    assert (sound / "metrics.redone.jsonl").exists(), "nothing was lost: the moment of the kill is too late"
    blind = []
    for name, damage in DAMAGE.items():
        copy = programs.work / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sound, copy, ignore=shutil.ignore_patterns(".ckptd", "tensorboard"))
        damage(copy)
        faults = judge(copy)
        print("%-45s %s" % (name, faults[0] if faults else "NOT SEEN"))
        if not faults:
            blind.append(name)
    return 1 if blind else 0


if __name__ == "__main__":
    sys.exit(main())
