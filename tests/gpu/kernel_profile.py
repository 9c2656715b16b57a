#!/usr/bin/env python3
"""Nsight Compute's tables, and what goals.json has counted by reading.

Usage: kernel_profile.py --metrics FILE   the counters to ask for, as far as FILE (`ncu --query-metrics`) has them
       kernel_profile.py --kernels        a regular expression of the kernels that are counted
       kernel_profile.py --times FILE     time and launches by kernel, of ncu's table FILE
"""
import csv
import json
import re
import sys
from pathlib import Path

GOALS = Path(__file__).resolve().parent / "goals.json"
# Our names of the counters. Hardware counters all, of few groups, so that a kernel is run again
# only a few times.
COUNTERS = {
    "ns": "gpu__time_duration.sum",
    "issue_active": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "tensor_active": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "conflicts_load": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "conflicts_store": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "dram_bytes": "dram__bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "hmma": "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "ldsm": "smsp__inst_executed_op_ldsm.sum",
    "warps_active": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
STALL = re.compile(r"^smsp__pcsamp_warps_issue_stalled_(\w+?)(?:\.\w+)?$")
CLOSE = 0.1  # of the counted number


def short_name(kernel):
    """`AttentionRingForwardKernel` of its whole demangled name."""
    name = kernel.replace("(anonymous namespace)::", "")
    while True:
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            break
        name = shorter
    return name.split("(")[0].split("::")[-1].split()[-1] if name.split("(")[0].split() else kernel


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def read_table(path):
    """The rows of ncu's CSV in base units (ns and bytes), each a dictionary; the row of the units and a last one that was cut short are left out."""
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").splitlines()
    begin = max((i for i, line in enumerate(lines) if line.startswith('"ID"')), default=None)
    if begin is None:
        return []
    header, *rows = csv.reader(line for line in lines[begin:] if line.startswith('"'))
    launches = []
    for row in rows:
        if len(row) != len(header) or not row[0].isdigit():
            continue
        texts = dict(zip(header, row))
        launch = {"kernel": short_name(texts.get("Kernel Name", "")), "grid": texts.get("Grid Size", "")}
        launch.update({key: value for key, text in texts.items() if "__" in key and (value := number(text)) is not None})
        launches.append(launch)
    return launches


def stalls_of(row):
    """The three reasons for which warps waited most, with their share of all samples."""
    samples = {found.group(1): value for key, value in row.items() if (found := STALL.match(key))}
    samples = {name: value for name, value in samples.items() if not name.endswith("_not_issued")}
    total = sum(samples.values())
    waits = sorted(((value, name) for name, value in samples.items() if name != "selected" and value > 0), reverse=True)
    return [[name, round(100 * value / total)] for value, name in waits[:3]]


def counter_records(path, lanes):
    for row in read_table(path):
        found = {name: row[metric] for name, metric in COUNTERS.items() if metric in row}
        yield {"kind": "counters", "kernel": row["kernel"], "grid": row["grid"], "lanes": lanes, **found, "stalls": stalls_of(row)}


def timeline_records(path, lanes):
    """Kernels by name, those that take longest first."""
    times = {}
    for row in read_table(path):
        ns = row.get(COUNTERS["ns"])
        if ns is not None:
            times.setdefault(row["kernel"], []).append(ns)
    total = sum(map(sum, times.values()))
    for kernel, each in sorted(times.items(), key=lambda item: -sum(item[1])):
        yield {"kind": "kernel_time", "kernel": kernel, "launches": len(each), "ms": round(sum(each) * 1e-6, 4), "percent": round(100 * sum(each) / total, 2),
               "lanes": lanes}


def records(logs, facts):
    """Of both tables in the folder `logs`; `facts` has how many lanes they were made with."""
    return [*counter_records(logs / "ncu_counters.csv", facts.get("counters_lanes", 1)),
            *timeline_records(logs / "ncu_timeline.csv", facts.get("timeline_lanes", 1))]


def verdict(measured, counted):
    """`confirmed`, or how many times as many there are."""
    return "confirmed" if abs(measured - counted) <= CLOSE * counted else f"{measured / counted:.2f} times"


def counted_rows(found, counted):
    """(kernel, what, counted, measured, verdict). What was counted a step of a warp is compared through its ratio to the products (HMMA) of the step,
    which needs no knowledge of the shape."""
    rows = []
    for each in counted:
        matching = [record for record in found if re.search(each["kernel"], record["kernel"]) and record.get("instructions")]
        if not matching:
            rows.append((each["kernel"], "", "", "", "not profiled"))
            continue
        record = max(matching, key=lambda one: one["instructions"])
        if "elements_a_lane" in each:
            measured = 32 * record["instructions"] / (each["elements_a_lane"] * record["lanes"])
            rows.append((record["kernel"], "instructions an element", each["instructions"], measured, verdict(measured, each["instructions"])))
            continue
        for what in ("instructions", "ldsm"):
            if what in each and record.get("hmma") and what in record:
                measured = each["hmma"] * record[what] / record["hmma"]
                rows.append((record["kernel"], f"{what.replace('ldsm', 'LDSM')} to {each['hmma']} HMMA, a {each['step']}", each[what], measured,
                             verdict(measured, each[what])))
    return rows


def step_rows(times, groups):
    """(what, counted ms a lane, measured ms a lane, launches, verdict) of a step's kernels; a kernel belongs to the first group that fits its name."""
    sums = [[0.0, 0] for _ in groups]
    for record in times:
        for total, group in zip(sums, groups):
            if re.search(group["kernels"], record["kernel"], re.IGNORECASE):
                total[0] += record["ms"] / record["lanes"]
                total[1] += record["launches"]
                break
    return [(group["what"], group["ms"], ms, launches, verdict(ms, group["ms"])) for group, (ms, launches) in zip(groups, sums)]


def known_metrics(query):
    """COUNTERS less those that `ncu --query-metrics` does not name; all of them if it did not answer."""
    names = set(re.findall(r"^(\w+__\w+)", query, re.MULTILINE))
    return [metric for metric in COUNTERS.values() if not names or metric.split(".")[0] in names]


def main():
    if sys.argv[1:2] == ["--metrics"]:
        print(",".join(known_metrics(Path(sys.argv[2]).read_text(errors="replace"))))
    elif sys.argv[1:] == ["--kernels"]:
        print("|".join(each["kernel"] for each in json.loads(GOALS.read_text())["counted"]))
    elif sys.argv[1:2] == ["--times"]:
        for record in timeline_records(Path(sys.argv[2]), 1):
            print(f"{record['ms']:9.3f} ms {record['percent']:6.2f} % {record['launches']:5} launches  {record['kernel']}")
    else:
        print(__doc__)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main())
