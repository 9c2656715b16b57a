#!/usr/bin/env python3
"""Makes report.md and report.tgz of what check.sh left in its folder. Python's standard library only.

Usage: report.py DIR --out DIR [--call NAME] [--seconds N]     writes both and prints the summary; the exit status is check.sh's (0, 1, 2 or 77),
                                                               74 if they could not be written
       report.py DIR --out DIR [--call NAME] --line CHECK      prints one check's line, and keeps report.md up to date, while the others still run
       report.py --merge NAME DIR...                           writes NAME.md and NAME.jsonl of several calls, the earliest first; each DIR is an
                                                               --out of check.sh, or its report.tgz. A later result of a check replaces an earlier one

report.tgz has report.md, report.jsonl (every record that report.md is made of) and logs/. check_results.py says what DIR has.
"""
import argparse
import io
import json
import math
import sys
import tarfile
import textwrap
from pathlib import Path

import kernel_profile
from check_results import CUT_OFF, FAILED, MAX_LOG, NOT_RUN, PASSED, STATUSES, Run, bisect_text, json_lines, read_log

GOALS = kernel_profile.GOALS
EXIT_FAILED, EXIT_CUT_OFF, EXIT_NO_GPU, EXIT_CANNOT_WRITE = 1, 2, 77, 74
MAX_ARCHIVE = 12_000_000
WORST_TENSORS = 12
LARGEST_KERNELS = 25
MAX_PROSE = 100
MAX_TERMINAL = 11_000
MAX_TERMINAL_LINE = 420


def of_kind(records, kind):
    return [record for record in records if record["kind"] == kind]


def exit_status(records):
    statuses = {check["status"] for check in of_kind(records, "check")}
    if FAILED in statuses:
        return EXIT_FAILED
    if CUT_OFF in statuses:
        return EXIT_CUT_OFF
    has_gpu = any(environment.get("gpus", "0") != "0" for environment in of_kind(records, "environment"))
    return EXIT_NO_GPU if NOT_RUN in statuses or not has_gpu else 0


def summary(records):
    statuses = [check["status"] for check in of_kind(records, "check")]
    return ", ".join(f"{statuses.count(status)} {status}" for status in STATUSES if status in statuses) or "no checks"


def mark(value, goal):
    """`goal`, `bar`, `below bar`, or `below goal` where only the goal is set."""
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


def measured_text(row):
    lane = f", {row['ms_a_lane']} ms a lane" if "ms_a_lane" in row else ""
    return f"{number(row['value'])} {row.get('unit', '')}{lane}" + (f", ours {row['times_faster']} times as fast" if "times_faster" in row else "")


def speed_text(records, goals):
    rows, missing = speed_rows(of_kind(records, "speed"), goals)
    if not rows:
        return ["Nothing was measured.", ""]
    lines = table(("case", "shape", "measured", "ms", "of ceiling", "bar", "goal", "reached"),
                  [(row["name"], row.get("shape", ""), measured_text(row),
                    number(row.get("ms")), f"{row['percent_of_ceiling']} %" if "percent_of_ceiling" in row else "",
                    number(row.get("bar")), number(row.get("goal")), row.get("mark") or "") for row in rows])
    chips = sorted({environment.get("chip", "an unknown chip") for environment in of_kind(records, "environment")})
    lines += [f"Goals are for one {goals['chip']}; this is {' and '.join(chips)}. Ceilings are the cases `copy` (bytes read and written) and `gemm` of "
              "this report. Peers' bars are how many times as fast ours is to be."]
    if missing:
        lines += [f"Not measured: {', '.join(missing)}."]
    return lines + [""]


def gradient_text(tensors):
    def times_bound(record):
        times = record["relative_l2"] / (record["bound"] or 1e-30)
        return float("inf") if math.isnan(times) else times

    worst = sorted(tensors, key=times_bound, reverse=True)[:WORST_TENSORS]
    return ([f"{len(tensors)} tensors; those nearest to their bounds:", ""] +
            table(("tensor", "relative L2", "bound"), [(r["tensor"], number(r["relative_l2"]), number(r["bound"])) for r in worst]))


def curve_text(losses):
    names = ("cpu_fp32", "cpu_bf16", "cuda_fp32", "cuda_bf16")
    points = [record for record in losses if "loss_at_step" in record]
    deviations = [record for record in losses if "loss_curve" in record]
    lines = table(("step", *names), [(p["loss_at_step"], *(f"{p[name]:.4f}" for name in names)) for p in points])
    return lines + table(("difference to cpu_fp32", "rms", "bound", "largest", "bound"),
                         [(d["loss_curve"], number(d["rms"]), number(d.get("rms_bound")), number(d["largest"]), number(d.get("largest_bound")))
                          for d in deviations])


def counter_text(found, goals):
    def megabytes(record):
        if "dram_bytes" not in record:
            return ""
        rate = f", {record['dram_bytes'] / record['ns'] * 1e-3:.2f} TB/s" if record.get("ns") else ""
        return f"{record['dram_bytes'] * 1e-6:.1f} MB{rate}"

    lines = table(("kernel", "grid", "us", "issue active %", "tensor active %", "warps active %", "bank conflicts", "DRAM", "warps wait for"),
                  [(r["kernel"], r["grid"], number(r["ns"] * 1e-3) if "ns" in r else "", number(r.get("issue_active")), number(r.get("tensor_active")),
                    number(r.get("warps_active")), number(r.get("conflicts_load", 0) + r.get("conflicts_store", 0)), megabytes(r),
                    ", ".join(f"{name} {share} %" for name, share in r["stalls"])) for r in found])
    lines += ["Instructions, as counted by reading and as executed:", ""]
    return lines + table(("kernel", "what", "counted", "measured", "so"),
                         [(kernel, what, number(counted), number(measured), verdict)
                          for kernel, what, counted, measured, verdict in kernel_profile.counted_rows(found, goals["counted"])])


def timeline_text(times, goals):
    total = sum(record["ms"] for record in times)
    lines = [f"{sum(record['launches'] for record in times)} launches, {total:.1f} ms, {total / times[0]['lanes']:.3f} ms a lane; each kernel by itself, "
             "so without what runs at the same time.", ""]
    lines += table(("what", "counted ms a lane", "measured ms a lane", "launches", "so"),
                   [(what, number(counted), number(ms), launches, verdict)
                    for what, counted, ms, launches, verdict in kernel_profile.step_rows(times, goals["step_ms_a_lane"])])
    return lines + table(("kernel", "launches", "ms", "share"),
                         [(r["kernel"], r["launches"], number(r["ms"]), f"{r['percent']} %") for r in times[:LARGEST_KERNELS]])


def machine_text(records):
    lines = []
    for record in of_kind(records, "clocks"):
        call = f" ({record['call']})" if "call" in record else ""
        lines += [f"{when}{call}: {record[key]}" for when, key in (("Clocks before", "before"), ("under load", "under_load"), ("after", "after")) if key in record]
    lines += [f"Leftover process of {r['check']}, killed: {r['process']} {r['command']}" for r in of_kind(records, "leftover")]
    lines += [f"Still on the GPU: {r['line']}" for r in of_kind(records, "gpu_process")]
    return lines + [f"Driver: {r['line']}" for r in of_kind(records, "xid")]


def markdown(records):
    goals = json.loads(GOALS.read_text())
    environments, checks, calls = of_kind(records, "environment"), of_kind(records, "check"), of_kind(records, "call")
    first = environments[0] if environments else {}
    lines = [f"# GPU check: {first.get('chip', 'no GPU')}, {first.get('date', 'no date')}", "",
             f"{summary(records)}; {sum(call['seconds'] for call in calls)} s. Exit status {exit_status(records)}.", ""]
    if len(calls) > 1:
        lines += table(("call", "date", "build", "seconds", "result"),
                       [(call["call"], call.get("date", ""), call.get("anyorder", ""), call["seconds"], call["summary"]) for call in calls])
    for environment in environments:
        lines += ["## Environment", ""] + table(("what", "found"), [pair for pair in environment.items() if pair[0] != "kind"])
    lines += ["## Checks", ""] + table(("part", "check", "status", "s", "note"),
                                       [(c["part"], c["check"], c["status"], c["seconds"], c["note"]) for c in checks])
    sections = (("What the diagnosis of failures found", "diagnosis",
                 lambda found: table(("check", "step", "s", "finding"), [(r["check"], r["step"], r["seconds"], r["finding"]) for r in found])),
                ("Attention, one part after another", "bisect", lambda found: [f"- {bisect_text(r)}{'' if not r.get('passed') else ': passed'}" for r in found] + [""]),
                ("Tensors compared with the CPU's", "gradient", gradient_text),
                ("Losses compared with the CPU's", "loss", curve_text),
                ("Counters of kernels", "counters", lambda found: counter_text(found, goals)),
                ("One step, kernel by kernel", "kernel_time", lambda found: timeline_text(found, goals)))
    for title, kind, text in sections:
        found = of_kind(records, kind)
        if found:
            try:
                lines += [f"## {title}", "", *text(found)]
            except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:  # a line that is not as agreed must not cost the report
                lines += [f"Cannot be shown ({error!r}); report.jsonl has it.", ""]
    lines += ["## Times", "", *speed_text(records, goals)]
    lines += ["## Machine", "", *(f"- {line}" for line in machine_text(records)), ""]
    return "\n".join(wrapped for line in lines for wrapped in wrap(line))


def wrap(line):
    """As the repository's other Markdown is: prose of at most MAX_PROSE columns."""
    if len(line) <= MAX_PROSE or line.startswith(("|", "#")):
        return [line]
    return textwrap.wrap(line, MAX_PROSE, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False, break_on_hyphens=False)


def failure_lines(records):
    """One line a failure, and a check that did not end, with the most telling finding of its diagnosis."""
    findings = {}
    for record in of_kind(records, "diagnosis"):
        findings.setdefault(record["check"], {})[record["step"]] = record["finding"]
    for check in of_kind(records, "check"):
        found = findings.get(check["check"], {})
        # What was cut off under way may have hung.
        if check["status"] != FAILED and not (check["status"] == CUT_OFF and check["seconds"] > 0):
            continue
        word = "FAILED" if check["status"] == FAILED else "DID NOT END"
        telling = [f"{step}: {found[step]}" for step in ("memcheck", "cuda_gdb", "blocking") if step in found]
        telling.sort(key=lambda finding: "0 errors" in finding)  # a tool that found nothing says least
        yield " -- ".join(filter(None, [f"{word} {check['check']}: {check['note']}", *telling[:1]]))[:MAX_TERMINAL_LINE]
    if "bisect" in findings:
        yield f"attention by parts: {findings['bisect']['bisect']}"[:MAX_TERMINAL_LINE]


def terminal(records):
    """What is printed last: callers may see no more than the end of the output."""
    goals = json.loads(GOALS.read_text())
    rows, _ = speed_rows(of_kind(records, "speed"), goals)
    steps = [row for row in rows if row["name"].startswith(("step_", "train_", "peer_")) or row.get("mark")]
    failures = list(failure_lines(records))
    cut_off = [check["check"] for check in of_kind(records, "check") if check["status"] == CUT_OFF]
    tail = ([f"cut off: {', '.join(cut_off)}"] if cut_off else []) + \
        [f"{row['name']:24} {row.get('shape', ''):24} {measured_text(row)}" + (f", {row['mark']}" if row.get("mark") else "") for row in steps] + \
        machine_text(records)
    room = MAX_TERMINAL - sum(len(line) + 1 for line in tail)
    shown = 0
    while shown < len(failures) and room > len(failures[shown]):
        room -= len(failures[shown]) + 1
        shown += 1
    left_out = [f"... and {len(failures) - shown} more failures, in report.md"] if shown < len(failures) else []
    return "\n".join(["", *failures[:shown], *left_out, *tail])[-MAX_TERMINAL:]


def pack(folder, records, text):
    """The bytes of report.tgz; logs are shortened until it fits."""
    logs = [path for path in sorted((folder / "logs").glob("*")) if path.is_file()]
    jsonl = "".join(json.dumps(record) + "\n" for record in records)
    for limit in (MAX_LOG, 200_000, 20_000, 0):
        files = {"report.md": text.encode(), "report.jsonl": jsonl.encode(), **{f"logs/{path.name}": read_log(path, limit).encode() for path in logs if limit}}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        if buffer.tell() <= MAX_ARCHIVE:
            break
    return buffer.getvalue()


def records_of(run, options):
    found = run.records()
    call = {"kind": "call", "call": options.call, "seconds": options.seconds, "date": run.environment.get("date", ""),
            "anyorder": run.environment.get("anyorder", ""), "summary": summary(found), "exit_status": exit_status(found)}
    return [*found, call]


def write_report(run, options):
    """Prints what was found even if it cannot be written."""
    records = records_of(run, options)
    text = markdown(records)
    print(terminal(records))
    print(f"\n{summary(records)}; {options.seconds} s; {options.out}/report.md, report.tgz", flush=True)
    try:
        (options.out / "report.md").write_text(text)
        (options.out / "report.tgz").write_bytes(pack(run.folder, records, text))
    except OSError as error:
        print(f"report.py: cannot write the report: {error}", file=sys.stderr)
        return EXIT_CANNOT_WRITE
    return exit_status(records)


def write_line(run, options):
    for check in run.checks:
        if check["check"] == options.line:
            print(f"{check['status']:8} {check['check']} ({check['seconds']} s): {check['note'][:MAX_TERMINAL_LINE]}", flush=True)
    try:  # a caller that loses patience still finds this much
        (options.out / "report.md").write_text(markdown(records_of(run, options)))
    except OSError:
        pass
    return 0


def read_records(path):
    """Of a report.tgz or of the folder that has one."""
    with tarfile.open(path / "report.tgz" if path.is_dir() else path) as archive:
        return json_lines(archive.extractfile("report.jsonl").read().decode())


def merged(calls):
    """Records of several calls, the earliest first. Of a check that ran again the last result counts, and the note says what was before."""
    checks, rest = {}, []
    for records in calls:
        call = next((record["call"] for record in records if record["kind"] == "call"), "")
        again = {check["check"] for check in of_kind(records, "check") if check["check"] in checks}
        for record in records:
            if record["kind"] == "clocks":
                record = {**record, "call": call}
            if record["kind"] != "check":
                rest.append(record)
                continue
            name = record["check"]
            if name in again and checks[name]["status"] != PASSED:
                record = {**record, "note": f"{record['note']}; {checks[name]['status']} in the call before: {checks[name]['note']}"}
            checks[name] = record
    environments = {}  # the same machine and build once
    for record in of_kind(rest, "environment"):
        environments.setdefault((record.get("chip"), record.get("driver"), record.get("anyorder")), record)
    return [*environments.values(), *checks.values(), *(record for record in rest if record["kind"] != "environment")]


def merge(name, folders):
    try:
        records = merged([read_records(folder) for folder in folders])
    except (OSError, KeyError, tarfile.TarError) as error:
        print(f"report.py: cannot read a report: {error}", file=sys.stderr)
        return 64
    Path(f"{name}.md").write_text(markdown(records))
    Path(f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    print(f"{name}.md, {name}.jsonl: {len(folders)} calls, {summary(records)}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--call", default="")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--line")
    parser.add_argument("--merge", metavar="NAME")
    options = parser.parse_args()
    if options.merge:
        return merge(options.merge, options.folders)
    if options.out is None or len(options.folders) != 1:
        parser.error("one folder, and --out")
    run = Run(options.folders[0])
    return write_line(run, options) if options.line else write_report(run, options)


if __name__ == "__main__":
    sys.exit(main())
