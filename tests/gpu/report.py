#!/usr/bin/env python3
"""Makes report.md and report.jsonl of what check.sh left in its folder. Python's standard library only.

Usage: report.py DIR [--seconds N]      writes both and prints the summary; the exit status is check.sh's (0, 1, 2 or 77)
       report.py DIR --line NAME        prints one check's line, while the others still run

DIR has environment.tsv (key, value), plan.tsv (part, check), results.tsv (part, check, exit status or reason, seconds, limit or words) and
logs/CHECK.log. Programs speak to the report by JSON lines in their logs:
  {"tensor": NAME, "relative_l2": X, "bound": Y}                            model_gradients
  {"loss_curve": ...} and {"loss_at_step": ...}                             loss_curve.py
  {"name": NAME, "shape": TEXT, "value": X, "unit": UNIT, "ms": X, "rate": X, "ceiling": "copy"|"gemm"}   gpu_bench and peers, in their order;
      `shape`, `ms`, `rate` and `ceiling` may be missing. `rate` is in the ceiling's unit, and the value is if it is missing. The cases named
      `copy` and `gemm` are the measured ceilings. goals.json has the goals.
"""
import argparse
import json
import re
import sys
from pathlib import Path

GOALS = Path(__file__).resolve().parent / "goals.json"
PASSED, FAILED, SKIPPED, CUT_OFF, NOT_RUN = "passed", "failed", "skipped", "cut off", "not run"
EXIT_FAILED, EXIT_CUT_OFF, EXIT_NO_GPU = 1, 2, 77
TIMED_OUT = (124, 137)  # coreutils' timeout; the second also stands for a process that something else killed
WORST_TENSORS = 12


def read_rows(path, columns):
    if not path.exists():
        return []
    rows = [line.split("\t") for line in path.read_text(errors="replace").splitlines()]
    return [row + [""] * (columns - len(row)) for row in rows if row[0]]


def json_lines(log):
    """The JSON objects of a log, among other lines; a last line that was cut short is none."""
    records = []
    for line in log.splitlines():
        if line.startswith("{"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append(record)
    return records


def last_line(log):
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("{")]
    results = len(json_lines(log))
    return lines[-1] if lines else f"{results} results" if results else "no output"


def test_counts(log):
    """(ran, passed, skipped, names of failed) of a GoogleTest program's log; None if it is none."""
    ran = re.search(r"^\[==========\] (\d+) tests? from .* ran\.", log, re.MULTILINE)
    if not ran:
        return None

    def count(word):
        found = re.search(rf"^\[ *{word} *\] (\d+) tests?", log, re.MULTILINE)
        return int(found.group(1)) if found else 0

    failed = re.findall(r"^\[  FAILED  \] (\S+?),? (?!\()", log + "\n", re.MULTILINE)
    names = [name for name in dict.fromkeys(failed + re.findall(r"^\[  FAILED  \] ([\w/.]+)$", log, re.MULTILINE)) if not name.isdigit()]
    return int(ran.group(1)), count("PASSED"), count("SKIPPED"), names


def words_of(log):
    """What a log says in one line."""
    sanitizer = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", log, re.MULTILINE)
    counts = test_counts(log)
    if counts:
        ran, passed, skipped, names = counts
        text = f"{passed} of {ran} tests passed" + (f", {skipped} skipped" if skipped else "")
        text += "".join(f", failed: {name}" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return "; ".join([text, *sanitizer])
    return "; ".join(sanitizer) or last_line(log)


def judge(outcome, seconds, words, log, environment):
    """(status, note) of a check. `outcome`: an exit status or check.sh's word for why there is none."""
    if outcome == "no-gpu":
        return NOT_RUN, f"no GPU: not run ({words})"
    if outcome == "old-driver":
        return NOT_RUN, f"not run: {words}"
    if outcome == "no-time":
        return CUT_OFF, words
    if outcome == "no-program":
        # A build with CUDA on a machine with a GPU that lacks a check has a fault; one without CUDA cannot have it.
        return (SKIPPED, f"{words}, which has no CUDA backend") if environment.get("cuda_backend") == "no" else (FAILED, words)
    status = int(outcome)
    if status in TIMED_OUT and seconds >= int(words):
        return CUT_OFF, f"after {words} s: {words_of(log)}"
    if status == 77:
        return SKIPPED, last_line(log).removeprefix("skipped: ")
    if status != 0 and "Device not supported" in log:
        return SKIPPED, "compute-sanitizer does not support this device"
    if status != 0:
        return FAILED, f"exit status {status}: {words_of(log)}"
    counts = test_counts(log)
    if counts and counts[1] == 0:
        reasons = re.findall(r"^.*: Skipped\n(.+)$", log, re.MULTILINE)
        return SKIPPED, f"all {counts[2]} tests: {reasons[0] if reasons else 'no reason given'}"
    return PASSED, words_of(log)


class Run:
    """What check.sh left in its folder."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {row[0]: row[1] for row in read_rows(folder / "environment.tsv", 2)}
        results = {row[1]: row for row in read_rows(folder / "results.tsv", 5)}
        self.checks = []
        for part, name, *_ in read_rows(folder / "plan.tsv", 2):
            if name in results:
                _, _, outcome, seconds, words = results[name][:5]
                status, note = judge(outcome, int(seconds), words, self.log(name), self.environment)
            else:
                seconds, status, note = 0, CUT_OFF, "the script was ended before this check was"
            self.checks.append({"kind": "check", "part": part, "check": name, "status": status, "seconds": int(seconds), "note": note})

    def log(self, name):
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def records(self, key):
        """JSON lines with `key`, of all logs in the order of the checks."""
        return [record for check in self.checks for record in json_lines(self.log(check["check"])) if key in record]

    def exit_status(self):
        statuses = {check["status"] for check in self.checks}
        if FAILED in statuses:
            return EXIT_FAILED
        if CUT_OFF in statuses:
            return EXIT_CUT_OFF
        return EXIT_NO_GPU if NOT_RUN in statuses or self.environment.get("gpus", "0") == "0" else 0

    def summary(self):
        counts = [f"{sum(check['status'] == status for check in self.checks)} {status}" for status in (PASSED, FAILED, SKIPPED, CUT_OFF, NOT_RUN)
                  if any(check["status"] == status for check in self.checks)]
        return ", ".join(counts) or "no checks"


def mark(value, goal):
    """`goal`, `bar`, `below bar` or "" where only the goal is set and not reached; without a goal None."""
    if goal is None:
        return None

    def reaches(limit):
        return value <= limit if goal.get("lower_is_better") else value >= limit

    if "goal" in goal and reaches(goal["goal"]):
        return "goal"
    if "bar" in goal:
        return ("bar" if "goal" in goal else "goal") if reaches(goal["bar"]) else "below bar"
    return "below goal"


def speed_rows(measured, goals):
    """Measured cases with their share of the measured ceiling, their goals and marks, and peers as the ratio that a goal is of."""
    by_name = {goal["name"]: goal for goal in goals["goals"]}
    numbers = [record for record in measured if isinstance(record.get("value"), (int, float))]
    ceilings = {record["name"]: record["value"] for record in numbers if record["name"] in ("copy", "gemm")}
    best = {}  # of the batch sizes that a case was measured with
    for record in numbers:
        best[record["name"]] = max(record["value"], best.get(record["name"], record["value"]))
    peers = {peer["name"]: peer for peer in goals["peers"]}
    rows = []
    for record in numbers:
        goal = by_name.get(record["name"])
        if goal and record.get("unit") != goal["unit"]:
            goal = None  # another quantity of the same case
        row = {"kind": "speed", **record}
        ceiling = ceilings.get(record.get("ceiling"))
        # Where the value is a time, the rate stands beside it, 0 if nothing was counted.
        rate = record.get("rate", None if record.get("unit") == "ms" else record["value"])
        if ceiling and rate and record["name"] not in ceilings:
            row["percent_of_ceiling"] = round(100 * rate / ceiling, 1)
        peer = peers.get(record["name"])
        if peer and record["value"] > 0 and peer["beside"] in best:
            row["times_faster"] = round(best[peer["beside"]] / record["value"], 2)
            row.update(bar=peer["bar"], mark=mark(row["times_faster"], {"bar": peer["bar"], "goal": peer["bar"]}))
        elif goal:
            row.update({key: goal[key] for key in ("bar", "goal") if key in goal}, mark=mark(record["value"], goal))
        rows.append(row)
    seen = {record["name"] for record in numbers}
    missing = [goal["name"] for goal in goals["goals"] + goals["peers"] if goal["name"] not in seen]
    return rows, missing


def number(value):
    if value is None:
        return ""
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows] + [""]


def speed_text(rows, missing, goals, chip):
    if not rows:
        return ["Nothing was measured.", ""]
    lines = table(("case", "shape", "measured", "ms", "of ceiling", "bar", "goal", "reached"),
                  [(row["name"], row.get("shape", ""),
                    f"{number(row['value'])} {row.get('unit', '')}" + (f", ours {row['times_faster']} times as fast" if "times_faster" in row else ""),
                    number(row.get("ms")), f"{row['percent_of_ceiling']} %" if "percent_of_ceiling" in row else "",
                    number(row.get("bar")), number(row.get("goal")), row.get("mark") or "") for row in rows])
    lines += [f"Goals are for one {goals['chip']}; this is {chip or 'an unknown chip'}. Ceilings are the cases `copy` (bytes read and written) and `gemm` of "
              "this run. Peers' bars are how many times as fast ours is to be."]
    if missing:
        lines += [f"Not measured: {', '.join(missing)}."]
    return lines + [""]


def gradient_text(tensors):
    worst = sorted(tensors, key=lambda record: -record["relative_l2"] / record["bound"] if record["bound"] else float("-inf"))[:WORST_TENSORS]
    return ([f"{len(tensors)} tensors; those nearest to their bounds:", ""] +
            table(("tensor", "relative L2", "bound"), [(r["tensor"], number(r["relative_l2"]), number(r["bound"])) for r in worst]))


def curve_text(points, deviations):
    names = ("cpu_fp32", "cpu_bf16", "cuda_fp32", "cuda_bf16")
    lines = table(("step", *names), [(p["loss_at_step"], *(f"{p[name]:.4f}" for name in names)) for p in points])
    return lines + table(("difference to cpu_fp32", "rms", "bound", "largest", "bound"),
                         [(d["loss_curve"], number(d["rms"]), number(d.get("rms_bound")), number(d["largest"]), number(d.get("largest_bound")))
                          for d in deviations])


def markdown(run, seconds, speed, missing, goals):
    environment = run.environment
    lines = [f"# GPU check: {environment.get('chip', 'no GPU')}, {environment.get('date', 'no date')}", "",
             f"{run.summary()}; {seconds} s. Exit status {run.exit_status()}.", ""]
    lines += ["## Environment", ""] + table(("what", "found"), environment.items())
    lines += ["## Checks", ""] + table(("part", "check", "status", "s", "note"),
                                       [(c["part"], c["check"], c["status"], c["seconds"], c["note"]) for c in run.checks])
    tensors, points = run.records("tensor"), run.records("loss_at_step")
    if tensors:
        lines += ["## Gradients of the whole model beside the CPU's", ""] + gradient_text(tensors)
    if points:
        lines += ["## Losses beside the CPU's", ""] + curve_text(points, run.records("loss_curve"))
    return "\n".join(lines + ["## Times", ""] + speed_text(speed, missing, goals, environment.get("chip"))) + "\n"


def write_report(run, seconds):
    goals = json.loads(GOALS.read_text())
    speed, missing = speed_rows(run.records("name"), goals)
    records = [{"kind": "environment", **run.environment}, *run.checks]
    records += [{"kind": "gradient", **record} for record in run.records("tensor")]
    records += [{"kind": "loss", **record} for key in ("loss_at_step", "loss_curve") for record in run.records(key)]
    records += speed
    records.append({"kind": "summary", "summary": run.summary(), "seconds": seconds, "exit_status": run.exit_status(), "not_measured": missing})
    (run.folder / "report.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run.folder / "report.md").write_text(markdown(run, seconds, speed, missing, goals))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--line")
    options = parser.parse_args()
    run = Run(options.folder)
    if options.line:
        for check in run.checks:
            if check["check"] == options.line:
                print(f"{check['status']:8} {check['check']} ({check['seconds']} s): {check['note']}", flush=True)
        return 0
    write_report(run, options.seconds)
    print(f"\n{run.summary()}; {options.seconds} s; {options.folder}/report.md, report.jsonl")
    return run.exit_status()


if __name__ == "__main__":
    sys.exit(main())
