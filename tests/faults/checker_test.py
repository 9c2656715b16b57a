"""The checker must see what it is there for: a sound history is accepted, each damaged copy of it is not. checker_test.py BIN_DIR WORK_DIR."""
import pathlib
import re
import shutil
import sys
import time

import history
from programs import STEPS, Launch, Programs, kill, processes, trained_steps


def edit(path, change):
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))


def metrics(change):
    return lambda run: edit(run / "metrics.jsonl", change)


def ledger(change):
    """Lines are sealed again."""
    def sealed(text):
        body = text[:text.rindex(',"crc32c"')]
        return '%s,"crc32c":"%08x"}' % (body, history.crc32c(body.encode()))
    return lambda run: edit(run / "ledger.jsonl", lambda lines: [sealed(line) for line in change(lines)])


def states(change):
    return lambda run: edit(run / "ckptd.node00.jsonl", change)


def last_with(lines, text):
    return max(i for i, line in enumerate(lines) if text in line)


def substituted(lines, i, pattern, replacement):
    changed = re.sub(pattern, replacement, lines[i])
    assert changed != lines[i], lines[i]
    return lines[:i] + [changed] + lines[i + 1:]


def swapped(lines):
    i, j = last_with(lines, '"DURABLE"'), last_with(lines, '"COMMITTED"')
    lines[i], lines[j] = lines[j], lines[i]
    return lines


# One for each thing that the checker reads.
DAMAGE = {
    "a step twice": metrics(lambda l: l[:40] + l[39:]),
    "a loss in its last digit": metrics(lambda l: substituted(l, 60, r'"loss":(\d+\.\d*?)\d,', r'"loss":\g<1>11,')),
    "a line of a start that was over": metrics(lambda l: substituted(l, STEPS - 1, r'"attempt":\d+', '"attempt":1')),
    "a lost step that was trained otherwise": lambda run: edit(
        run / "metrics.redone.jsonl", lambda l: [re.sub(r'"loss":', '"loss":1', l[0])] + l[1:]),
    "a byte of the ledger": lambda run: edit(run / "ledger.jsonl", lambda l: [l[0], l[1].replace("start", "stort")] + l[2:]),
    "a start twice": ledger(lambda l: l + [l[last_with(l, '"event":"start"')]]),
    "a start from an older checkpoint": ledger(lambda l: substituted(l, last_with(l, '"event":"train"'), r'"step":\d+', '"step":0')),
    "samples of a step left out": ledger(lambda l: substituted(l, last_with(l, '"event":"trained"'), r'"first_step":(\d)', r'"first_step":9\1')),
    "a commit that nobody made": ledger(lambda l: substituted(l, last_with(l, '"event":"commit"'), r'"step":\d+', '"step":1')),
    "a commit before it was durable": states(swapped),
    "a step committed twice": states(lambda l: l + [l[last_with(l, '"COMMITTED"')].replace('"generation":', '"generation":9')]),
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
