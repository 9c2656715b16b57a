"""Disturbs tiny runs at random and judges what they leave behind; see README.md. Usage: run.sh --help."""
import argparse
import collections
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

import kills
import signals
from programs import Failure, Programs, processes


def parse():
    parser = argparse.ArgumentParser(prog="tests/faults/run.sh", description="Kills and stops real training runs, and checks that nothing is lost.")
    parser.add_argument("--runs", type=int, default=0, help="runs to kill, each two times or more")
    parser.add_argument("--signals", type=int, default=0, help="stop signals to send to other runs, some of them twice")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides every choice (default: the time)")
    parser.add_argument("--first", type=int, default=0, help="number of the first run: with --runs 1 it repeats one")
    parser.add_argument("--minutes", type=float, default=0, help="begin no new run after this many minutes")
    parser.add_argument("--kills", type=int, default=0, help="begin no new run after this many kills")
    parser.add_argument("--bin", default=os.environ.get("ANYORDER_BIN", pathlib.Path(__file__).resolve().parents[2] / "build/bin"))
    parser.add_argument("--work", default="", help="directory for runs (default: a new temporary one)")
    return parser.parse_args()


def play(options, programs, kind, player, number, tally):
    """Whether run `number` went as it must; its directory stays if not."""
    directory = programs.work / ("%s-%d-%d" % (kind, options.seed, number))
    shutil.rmtree(directory, ignore_errors=True)  # of the same run's failure before
    try:
        player(programs, directory, random.Random("%s %d %d" % (kind, options.seed, number)), tally)
        return True
    except Failure as failure:
        reason = str(failure)
    except Exception:
        reason = traceback.format_exc()
    print("FAILED: %s run %d of seed %d:\n%s" % (kind, number, options.seed, reason))
    print("again: tests/faults/run.sh --%s 1 --first %d --seed %d; everything it wrote: %s" % (kind, number, options.seed, directory), flush=True)
    left = processes(directory / "run")
    if left:
        print("still running: %s" % left)
    return False


def kill_runs(options, programs, tally, started):
    failed = played = 0
    hits = lambda: sum(tally[target] for target in kills.TARGETS)
    player = lambda *arguments: kills.KilledRun(*arguments).play()
    for number in range(options.first, options.first + options.runs):
        if options.minutes and time.monotonic() - started > 60 * options.minutes or options.kills and hits() >= options.kills:
            break
        failed += not play(options, programs, "runs", player, number, tally)
        played += 1
        if played % 10 == 0:
            print("%d runs, %d kills, %d failed, %.0f s" % (played, hits(), failed, time.monotonic() - started), flush=True)
    if options.runs:
        print("seed %d: %d runs killed %d times, %d failed, %.0f s" % (options.seed, played, hits(), failed, time.monotonic() - started))
    return failed


def stop_runs(options, programs, tally, started):
    failed, number, latencies = 0, options.first, []
    player = lambda *arguments: signals.StoppedRun(*arguments, latencies).play()
    while len(latencies) < options.signals and not failed:
        failed += not play(options, programs, "signals", player, number, tally)
        number += 1
    if not latencies:
        return failed
    seconds = sorted(s for _, s, _ in latencies)
    print("seed %d: %d stop signals in %d runs, %d failed, %.0f s; signal to exit: median %.2f s, 90 %% %.2f s, most %.2f s" %
          (options.seed, len(seconds), number - options.first, failed, time.monotonic() - started,
           seconds[len(seconds) // 2], seconds[int(0.9 * len(seconds))], seconds[-1]))
    for phase in signals.PHASES:
        mine = [(s, b) for p, s, b in latencies if p == phase]
        if mine:
            print("  %-20s %3d signals, most %.2f s; budgets %s" % (phase, len(mine), max(s for s, _ in mine), sorted({b for _, b in mine if b})[-3:]))
    return failed


def main():
    options = parse()
    programs = Programs(options.bin, options.work or tempfile.mkdtemp(prefix="anyorder-faults-"))
    programs.prepare()
    started, tally = time.monotonic(), collections.Counter()
    failed = kill_runs(options, programs, tally, started)
    failed += stop_runs(options, programs, tally, time.monotonic())
    for name, count in sorted(tally.items()):
        print("  %-50s %d" % (name, count))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
