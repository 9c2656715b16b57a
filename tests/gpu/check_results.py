"""What check.sh left in its folder, as records; report.py writes them down.

The folder has environment.tsv (key, value), plan.tsv (part, check), results.tsv (part, check, exit status or reason, seconds, limit or
words), reruns.tsv (check, the check that had crashed before it, exit status, seconds), diagnosis.tsv (check, step, exit status, seconds, limit),
leftovers.tsv (check, process, command), clocks.csv, gpu_processes.txt, xid.txt and logs/.
Programs speak to the report by JSON lines in their logs:
  {"tensor": NAME, "relative_l2": X, "bound": Y}                            model_gradients and other comparisons
  {"loss_curve": ...} and {"loss_at_step": ...}                             loss_curve.py
  {"bisecting": NAME}, then {"bisect": NAME, "tensor", "relative_l2", "bound", "passed", "worst", "pattern"}      gpu.device_test --bisect
  {"name": NAME, "shape": TEXT, "value": X, "unit": UNIT, "ms": X, "rate": X, "ceiling": "copy"|"gemm"}   gpu_bench and peers, in their order;
      `shape`, `ms`, `rate` and `ceiling` may be missing. `rate` is in the ceiling's unit, and the value is if it is missing. The cases named
      `copy` and `gemm` are the measured ceilings. goals.json has the goals.
"""
import json
import re

import kernel_profile

PASSED, FAILED, SKIPPED, CUT_OFF, NOT_RUN = "passed", "failed", "skipped", "cut off", "not run"
STATUSES = (PASSED, FAILED, SKIPPED, CUT_OFF, NOT_RUN)
TIMED_OUT = (124, 137)  # coreutils' timeout; the second also stands for a process that something else killed
MAX_LOG = 2_000_000
# In front of a source's path, as failures name it: where the build happened to be.
BUILDERS_FOLDER = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+?(?=(?:ckpt|core|data|dist|kernels|launcher|tests)/[\w./-]+\.(?:cc|cuh?|h)\b)")
MAX_WORDS = 500
THROTTLES = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
BUSY_PERCENT = 50


def read_rows(path, columns):
    if not path.exists():
        return []
    rows = [line.split("\t") for line in path.read_text(errors="replace").splitlines()]
    return [row + [""] * (columns - len(row)) for row in rows if row[0]]


def read_log(path, limit=MAX_LOG):
    """A log, without the middle of one that is longer than `limit` bytes."""
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        size = path.stat().st_size
        if size <= limit:
            return file.read().decode(errors="replace")
        head = file.read(limit // 2)
        file.seek(size - limit // 2)
        return head.decode(errors="replace") + f"\n... {size - limit} bytes left out ...\n" + file.read().decode(errors="replace")


def json_lines(log):
    """The JSON objects of a log, among other lines; a last line that was cut short is none. C's spelling of what is no number is allowed."""
    records = []
    for line in log.splitlines():
        if line.startswith("{"):
            try:
                record = json.loads(re.sub(r"(: *-?)(nan|inf)\b", lambda found: found.group(1).replace("-", "") + "NaN", line))
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append(record)
    return records


def last_line(log):
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("{")]
    results = len(json_lines(log))
    return lines[-1][:MAX_WORDS] if lines else f"{results} results" if results else "no output"


def test_counts(log):
    """(ran, passed, skipped, names of failed) of a GoogleTest program's log, or of several one after another; None if it is none."""
    ran = re.findall(r"^\[==========\] (\d+) tests? from .* ran\.", log, re.MULTILINE)
    if not ran:
        return None

    def count(word):
        return sum(map(int, re.findall(rf"^\[ *{word} *\] (\d+) tests?(?:\.|, listed below:)$", log, re.MULTILINE)))

    failed = re.findall(r"^\[  FAILED  \] (\S+?),? (?!\()", log + "\n", re.MULTILINE)
    names = [name for name in dict.fromkeys(failed + re.findall(r"^\[  FAILED  \] ([\w/.]+)$", log, re.MULTILINE)) if not name.isdigit()]
    return sum(map(int, ran)), count("PASSED"), count("SKIPPED"), names


def first_failure(log):
    """GoogleTest's words on the first expectation that failed, in one line."""
    found = re.search(r": Failure\n((?:(?!\[|\{).+\n?){1,6})", log)
    lines = [line for line in found.group(1).splitlines() if not re.match(r"Value of:|  Actual: (false|true)|Expected: (false|true)", line)] if found else []
    return " ".join(" ".join(lines).split())[:300]


def wrong_switches(log):
    """What is wrong with attention, of the first few lines that say so (gpu.device_test --bisect, and the smoke cases of it)."""
    wrong = [record for record in json_lines(log) if "bisect" in record and not record.get("passed", False)]
    return "; ".join(bisect_text(record) for record in wrong[:3])


def sanitizer_finding(log):
    """compute-sanitizer's first finding: what, where, who."""
    lines = [line.removeprefix("=========").strip() for line in log.splitlines() if line.startswith("=========")]
    for number, line in enumerate(lines):
        if line and not re.match(r"COMPUTE-SANITIZER|Program hit|Target application|Internal|\w+ SUMMARY|No attachable", line):
            return "; ".join(part for part in lines[number:number + 3] if part and "SUMMARY" not in part)[:400]
    return ""


def core_dump_finding(log):
    """Where cuda-gdb found the device to have stopped."""
    lines = [line.strip() for line in log.splitlines()]
    found = [line for line in lines if re.match(r"CUDA Exception|The exception was triggered|\[Current focus|#0 ", line)]
    return "; ".join(found)[:500]


def words_of(log):
    """What a log says in one line."""
    sanitizer = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", log, re.MULTILINE)
    finding = sanitizer_finding(log)
    counts = test_counts(log)
    if counts:
        ran, passed, skipped, names = counts
        text = f"{passed} of {ran} tests passed" + (f", {skipped} skipped" if skipped else "")
        text += "".join(f", failed: {name}" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return "; ".join(filter(None, [text, wrong_switches(log) or first_failure(log), *sanitizer, finding]))
    return "; ".join(filter(None, [*sanitizer, finding])) or last_line(log)


def judge(outcome, seconds, words, log, environment):
    """(status, note) of a check. `outcome`: an exit status or check.sh's word for why there is none."""
    # A build with CUDA on a machine with a GPU that lacks a check has a fault; one without CUDA
    # cannot have it.
    lacks_cuda = environment.get("cuda_backend") == "no"
    reasons = {"no-gpu": (NOT_RUN, f"no GPU: not run ({words})"), "old-driver": (NOT_RUN, f"not run: {words}"), "no-time": (CUT_OFF, words),
               "no-program": (SKIPPED, f"{words}, which has no CUDA backend") if lacks_cuda else (FAILED, words)}
    if outcome in reasons:
        return reasons[outcome]
    status = int(outcome)
    if status in TIMED_OUT and seconds >= int(words):
        return CUT_OFF, f"after {words} s: {words_of(log)}"
    if status == 77:
        return SKIPPED, last_line(log).removeprefix("skipped: ")
    if status != 0 and "Device not supported" in log:
        return SKIPPED, "compute-sanitizer does not support this device"
    if status != 0:
        signal = f" (signal {status - 128})" if 128 < status < 160 else ""
        return FAILED, f"exit status {status}{signal}: {words_of(log)}"
    counts = test_counts(log)
    if counts and counts[0] == 0:
        return FAILED, "no test of this name is in the program"
    if counts and counts[1] == 0:
        reasons = re.findall(r"^.*: Skipped\n(.+)$", log, re.MULTILINE)
        return SKIPPED, f"all {counts[2]} tests: {reasons[0] if reasons else 'no reason given'}"
    return PASSED, words_of(log)


def bisect_text(record):
    """One failed switch of the bisection in words."""
    if "crashed" in record:
        did_not_end = record["crashed"] in TIMED_OUT
        return f"{record['bisect']}: {'did not end' if did_not_end else 'crashed with status ' + str(record['crashed'])}"
    off, bound = ("not finite" if record.get(key) is None else record[key] for key in ("relative_l2", "bound"))
    worst = record.get("worst")
    places = [f"{key.replace('_', ' ')} {value}" for key, value in worst.items()] if isinstance(worst, dict) else []
    parts = [f"{record['bisect']}: {record.get('tensor', '')} has relative L2 {off}, bound {bound}",
             "worst element at " + ", ".join(places) if places else "", str(record.get("pattern") or "")]
    return ", ".join(filter(None, parts))


def finding_of(step, status, log):
    """What a step of the diagnosis says, in one line."""
    if step == "bisect":
        return wrong_switches(log) or last_line(log)
    if step == "cuda_gdb":
        return core_dump_finding(log) or last_line(log)
    if step == "memcheck":
        return sanitizer_finding(log) or words_of(log)
    return "passes" if status == 0 else f"exit status {status}: {words_of(log)}"


def throttles(masks):
    """Names of the throttle reasons that occur in hexadecimal masks."""
    found = set()
    for mask in masks:
        try:
            bits = int(mask, 16)
        except ValueError:
            continue
        found |= {name for bit, name in THROTTLES.items() if bits & bit}
    return ", ".join(sorted(found)) or "none"


def clock_record(path):
    """Clocks before, after, and under load, of nvidia-smi's lines; None without any."""
    rows = [row for row in ([cell.strip() for cell in line.split(",")] for line in read_log(path).splitlines()) if len(row) == 6]
    if not rows:
        return None

    def text(row):
        return f"SM {row[0]} MHz, memory {row[1]} MHz, {row[2]} C, {row[3]} W, throttled: {throttles([row[5]])}"

    busy = [row for row in rows if row[4].isdigit() and int(row[4]) >= BUSY_PERCENT and row[0].isdigit()]
    record = {"kind": "clocks", "before": text(rows[0]), "after": text(rows[-1])}
    if busy:
        clocks = sorted(int(row[0]) for row in busy)
        record["under_load"] = (f"SM {clocks[0]} to {clocks[-1]} MHz, median {clocks[len(clocks) // 2]}, of {len(busy)} samples, "
                                f"throttled: {throttles(row[5] for row in busy)}")
    return record


class Run:
    """What check.sh left in its folder."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {row[0]: row[1] for row in read_rows(folder / "environment.tsv", 2)}
        self.results = {row[1]: row for row in read_rows(folder / "results.tsv", 5)}
        self.reruns = {row[0]: row for row in read_rows(folder / "reruns.tsv", 4)}
        self.checks = [self._check(part, name) for part, name, *_ in read_rows(folder / "plan.tsv", 2)]

    def _check(self, part, name):
        if name not in self.results:
            return {"kind": "check", "part": part, "check": name, "status": CUT_OFF, "seconds": 0, "note": "the script was ended before this check was"}
        _, _, outcome, seconds, words = self.results[name][:5]
        status, note = judge(outcome, int(seconds), words, self.log(name), self.environment)
        if name in self.reruns:
            _, crashed, again, _ = self.reruns[name][:4]
            note = f"{status} right after {crashed} crashed, {'passed' if again == '0' else f'status {again}'} when run again; {note}"
        return {"kind": "check", "part": part, "check": name, "status": status, "seconds": int(seconds), "note": note}

    def log(self, name):
        return BUILDERS_FOLDER.sub("", read_log(self.folder / "logs" / f"{name}.log"))

    def _lines(self, key, without_profiles=False):
        """JSON lines with `key`; times under a profiler are none."""
        return [record for check in self.checks if not (without_profiles and check["check"].startswith("ncu_"))
                for record in json_lines(self.log(check["check"])) if key in record]

    def _diagnosis(self):
        for name, step, status, seconds, _ in (row[:5] for row in read_rows(self.folder / "diagnosis.tsv", 5)):
            log = self.log("bisect" if step == "bisect" else f"{name}.{step}")
            yield {"kind": "diagnosis", "check": name, "step": step, "seconds": int(seconds), "finding": finding_of(step, int(status), log)}

    def records(self):
        """All of it, in the order of the report."""
        found = [{"kind": "environment", **self.environment}, *self.checks, *self._diagnosis()]
        found += [{"kind": "bisect", **record} for record in json_lines(self.log("bisect")) if "bisect" in record]
        found += [{"kind": "gradient", **record} for record in self._lines("tensor") if "bisect" not in record]
        found += [{"kind": "loss", **record} for key in ("loss_at_step", "loss_curve") for record in self._lines(key)]
        found += [{"kind": "speed", **record} for record in self._lines("name", without_profiles=True)]
        found += kernel_profile.records(self.folder / "logs", {key: value for record in self._lines("counters_lanes") + self._lines("timeline_lanes")
                                                               for key, value in record.items()})
        found += [{"kind": "leftover", "check": row[0], "process": row[1], "command": row[2]} for row in read_rows(self.folder / "leftovers.tsv", 3)]
        for kind, name in (("gpu_process", "gpu_processes.txt"), ("xid", "xid.txt")):
            found += [{"kind": kind, "line": line.strip()} for line in read_log(self.folder / name).splitlines() if line.strip()]
        clocks = clock_record(self.folder / "clocks.csv")
        return found + ([clocks] if clocks else [])
