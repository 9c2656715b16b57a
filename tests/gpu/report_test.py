"""report.py and check_results.py on recorded outputs; by itself it runs all tests of this folder's Python. Usage: report_test.py"""
import argparse
import contextlib
import io
import json
import random
import tarfile
import tempfile
import unittest
from pathlib import Path

import check_results
import report

ALL_PASSED = """Running main() from gtest_main.cc
[==========] Running 3 tests from 1 test suite.
[ RUN      ] Gpu/BackendTest.Gemm/CudaF32
[       OK ] Gpu/BackendTest.Gemm/CudaF32 (12 ms)
[==========] 3 tests from 1 test suite ran. (40 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Gpu/BackendTest.Gemm/CudaF64
"""
ALL_SKIPPED = """[==========] Running 2 tests from 1 test suite.
[ RUN      ] Gpu/BackendTest.Gemm/CudaF32
tests/kernels/backend_fixture.h:48: Skipped
no GPU: CUDA sees no device
[  SKIPPED ] Gpu/BackendTest.Gemm/CudaF32 (0 ms)
[==========] 2 tests from 1 test suite ran. (1 ms total)
[  PASSED  ] 0 tests.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Gpu/BackendTest.Gemm/CudaF32
"""
SOME_FAILED = """[==========] Running 3 tests from 1 test suite.
tests/kernels/gemm_cases.cc:40: Failure
[  FAILED  ] Gpu/BackendTest.Gemm/CudaBF16, where GetParam() = CudaBF16 (7 ms)
[==========] 3 tests from 1 test suite ran. (40 ms total)
[  PASSED  ] 1 test.
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Gpu/BackendTest.Gemm/CudaBF16, where GetParam() = CudaBF16
[  FAILED  ] GpuTest.Plain

 2 FAILED TESTS
"""
CUT_OFF = """[==========] Running 9 tests from 1 test suite.
[ RUN      ] AttentionTest.Xlnet
[       OK ] AttentionTest.Xlnet (3000 ms)
[ RUN      ] AttentionTest.Causal
"""
SANITIZED = "========= COMPUTE-SANITIZER\n" + ALL_PASSED + "========= ERROR SUMMARY: 0 errors\n"
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at A+0x10 and Read access at B+0x20 [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BENCH = """{"name": "copy", "shape": "8 GB", "value": 4.2, "unit": "TB/s", "ms": 2.0}
{"name": "gemm", "shape": "8192x8192x8192", "value": 780, "unit": "TFLOP/s"}
{"name": "attention_forward", "shape": "B64", "value": 234.0, "unit": "TFLOP/s", "ms": 9.5, "ceiling": "gemm"}
{"name": "layernorm", "shape": "38208x1024", "value": 3.1, "unit": "TB/s", "ceiling": "copy"}
{"name": "adamw_large", "value": 2.9, "unit": "ms", "ms": 2.9, "rate": 3.78, "ceiling": "copy"}
{"name": "attention_backward_sums", "value": 0.7, "unit": "ms", "ms": 0.7, "rate": 0, "ceiling": "gemm"}
{"name": "step_large", "value": 181000.0, "unit": "tokens/s", "ms": 181.0}
{"name": "step_base", "value": 470000, "unit": "tok"""
PEERS = '{"name": "peer_large_eager", "value": 30000, "unit": "tokens/s"}\n{"name": "peer_large_compile", "value": 100000, "unit": "tokens/s"}\n'
GRADIENTS = """{"tensor": "embedding", "relative_l2": 0.002, "bound": 0.01}
{"tensor": "layer0.q", "relative_l2": 0.009, "bound": 0.01}
[==========] 1 test from 1 test suite ran. (900 ms total)
[  PASSED  ] 1 test.
"""


class Folder(unittest.TestCase):
    """A folder as check.sh leaves it."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        (self.root / "logs").mkdir()
        for name in ("plan.tsv", "results.tsv"):
            (self.root / name).write_text("")
        self.write_environment(gpus="1", chip="NVIDIA H200", driver="580.0", date="2026-01-02 03:04 UTC")

    def write_environment(self, **facts):
        (self.root / "environment.tsv").write_text("".join(f"{key}\t{value}\n" for key, value in facts.items()))

    def add(self, name, outcome, log="", seconds=1, words="60", part="correctness"):
        with open(self.root / "plan.tsv", "a", encoding="utf-8") as file:
            file.write(f"{part}\t{name}\n")
        with open(self.root / "results.tsv", "a", encoding="utf-8") as file:
            file.write(f"{part}\t{name}\t{outcome}\t{seconds}\t{words}\n")
        (self.root / "logs" / f"{name}.log").write_text(log)

    def check(self, name):
        return next(check for check in check_results.Run(self.root).checks if check["check"] == name)

    def judged(self, *arguments, **options):
        name = f"x{len((self.root / 'plan.tsv').read_text().splitlines())}"
        self.add(name, *arguments, **options)
        check = self.check(name)
        return check["status"], check["note"]


# What it is about; outcome, log, seconds and words; status and note, or how that begins.
JUDGED = (
    ("passes", (0, ALL_PASSED), "passed", "2 of 3 tests passed, 1 skipped"),
    ("all skipped is not passed", (0, ALL_SKIPPED), "skipped", "all 2 tests: no GPU: CUDA sees no device"),
    ("no test of this name", (0, "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n"), "failed", ""),
    ("failed tests are named", (1, SOME_FAILED), "failed",
     "exit status 1: 1 of 3 tests passed, failed: Gpu/BackendTest.Gemm/CudaBF16, failed: GpuTest.Plain"),
    ("crash without a word", (139, ""), "failed", "exit status 139 (signal 11): no output"),
    ("past its limit", (124, CUT_OFF, 60), "cut off", "after 60 s: [ RUN      ] AttentionTest.Causal"),
    ("killed at its limit", (137, CUT_OFF, 60), "cut off", "after 60 s: [ RUN      ] AttentionTest.Causal"),
    ("killed before its limit", (137, "Killed\n", 3), "failed", ""),
    ("no time left", ("no-time", "", 1, "the time was used up"), "cut off", "the time was used up"),
    ("skipped", (77, "some output\nskipped: this build has no train.device\n"), "skipped", "this build has no train.device"),
    ("sanitizer's summary", (0, SANITIZED), "passed", "2 of 3 tests passed, 1 skipped; ERROR SUMMARY: 0 errors"),
    ("sanitizer's first finding", (1, RACECHECK), "failed", "exit status 1: RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings); Error: Race "
     "reported between Write access at A+0x10 and Read access at B+0x20 [64 hazards]"),
    ("the builder's folder is left out", (1, "Expected: x\n/home/me/anyorder/tests/gpu/smoke_test.cc:37: BF16\n"), "failed",
     "exit status 1: tests/gpu/smoke_test.cc:37: BF16"),
    ("sanitizer without its device", (1, "========= Error: Device not supported\n"), "skipped", ""),
)
# Outcomes and how many GPUs there are; exit status.
EXITS = (((0, 77), 1, 0), ((0, 124, 1), 1, 1), ((0, 124), 1, 2), ((0, "no-gpu"), 0, 77), ((0,), 0, 77), ((0, "old-driver"), 1, 77), ((1, "no-gpu"), 0, 1))


class JudgeTest(Folder):
    def test_status_and_note(self):
        for what, outcome, *expected in JUDGED:
            with self.subTest(what):
                status, note = self.judged(*outcome)
                self.assertEqual([status, note[:len(expected[1])]], expected)
                self.assertTrue(note == expected[1] or not expected[1])

    def test_a_smoke_case_of_attention_says_its_worst_element(self):
        line = '{"bisect": "ring forward", "tensor": "out", "relative_l2": null, "bound": 0.01, "passed": false, "worst": {"row_mod_8": 5}, "pattern": "mask"}\n'
        log = line + "x.cc:1: Failure\nValue of: report.passed\n  Actual: false\nExpected: true\n" + line + SOME_FAILED
        self.assertEqual(self.judged(1, log)[1].split("; ")[1], "ring forward: out has relative L2 not finite, bound 0.01, worst element at row mod 8 5, mask")
        self.assertEqual([r["kind"] for r in check_results.Run(self.root).records()], ["environment", "check"])
        self.assertEqual(check_results.first_failure("x.cc:1: Failure\nValue of: a.passed()\n  Actual: false\nExpected: true\nlayer0: 3 is beyond 2\n\n"), "layer0: 3 is beyond 2")
        self.assertEqual(check_results.finding_of("bisect", 1, '{"bisect": "position", "crashed": 124}\n{"bisect": "torn", "tens'), "position: did not end")
        self.assertEqual(check_results.finding_of("blocking", 0, "ok\n"), "passes")

    def test_exit_statuses(self):
        for outcomes, gpus, status in EXITS:
            self.write_environment(gpus=str(gpus))
            for name in ("plan.tsv", "results.tsv"):
                (self.root / name).write_text("")
            for number, outcome in enumerate(outcomes):
                self.add(f"c{number}", outcome, seconds=60 if outcome == 124 else 1)
            self.assertEqual(report.exit_status(check_results.Run(self.root).records()), status, outcomes)


class ReportTest(Folder):
    def run_report(self):
        """The exit status; `printed` has what the terminal shows."""
        out = self.root / "out"
        out.mkdir(exist_ok=True)
        self.printed = io.StringIO()
        with contextlib.redirect_stdout(self.printed), contextlib.redirect_stderr(self.printed):
            return report.write_report(check_results.Run(self.root), argparse.Namespace(out=out, call="depth", seconds=412))

    def write(self):
        self.run_report()
        return (self.root / "out/report.md").read_text(), report.read_records(self.root / "out")

    def speed(self, records):
        rows, _ = report.speed_rows([record for record in records if record["kind"] == "speed"], json.loads(report.GOALS.read_text()))
        return {row["name"]: row for row in rows}

    def test_a_whole_run(self):
        self.add("backend_suite", 0, ALL_PASSED)
        self.add("attention", 1, SOME_FAILED)
        self.add("model_gradients", 0, GRADIENTS)
        self.add("memcheck", 0, SANITIZED, part="sanitizer")
        self.add("gpu_bench", 124, BENCH, seconds=120, words="120", part="speed")
        self.add("peers", 0, PEERS, part="speed")
        text, records = self.write()
        self.assertIn("# GPU check: NVIDIA H200, 2026-01-02 03:04 UTC", text)
        self.assertIn("4 passed, 1 failed, 1 cut off; 412 s. Exit status 1.", text)
        self.assertIn("| driver | 580.0 |", text)
        self.assertIn("| correctness | attention | failed | 1 | exit status 1: 1 of 3", text)
        self.assertLess(text.index("| layer0.q |"), text.index("| embedding |"), "nearest to its bound first")
        self.assertIn("| speed | gpu_bench | cut off | 120 | after 120 s: 7 results |", text)
        self.assertIn("Not measured: step_base, attention_backward_a.", text)
        self.assertEqual(records[0]["chip"], "NVIDIA H200")
        self.assertEqual([record["status"] for record in records if record["kind"] == "check"],
                         ["passed", "failed", "passed", "passed", "cut off", "passed"])
        self.assertEqual(records[-1], {"kind": "call", "call": "depth", "seconds": 412, "date": "2026-01-02 03:04 UTC", "anyorder": "",
                                       "summary": "4 passed, 1 failed, 1 cut off", "exit_status": 1})

    def test_marks_ceilings_and_peers(self):
        self.add("gpu_bench", 0, BENCH, part="speed")
        self.add("peers", 0, PEERS, part="speed")
        speed = self.speed(self.write()[1])
        self.assertEqual(speed["attention_forward"]["mark"], "bar")
        self.assertEqual(speed["attention_forward"]["percent_of_ceiling"], 30.0)
        self.assertEqual(speed["layernorm"]["mark"], "below bar")
        self.assertEqual(speed["layernorm"]["percent_of_ceiling"], 73.8)
        self.assertEqual(speed["adamw_large"]["mark"], "goal")  # smaller is better
        self.assertEqual(speed["adamw_large"]["percent_of_ceiling"], 90.0)  # of the rate, not of the milliseconds
        self.assertNotIn("percent_of_ceiling", speed["attention_backward_sums"])
        self.assertEqual(speed["step_large"]["mark"], "goal")
        self.assertEqual((speed["peer_large_eager"]["times_faster"], speed["peer_large_eager"]["mark"]), (6.03, "goal"))
        self.assertEqual((speed["peer_large_compile"]["times_faster"], speed["peer_large_compile"]["mark"]), (1.81, "below bar"))
        self.assertNotIn("percent_of_ceiling", speed["copy"])
        self.assertNotIn("mark", speed["copy"])

    def test_a_peer_is_compared_with_our_best_batch(self):
        self.add("gpu_bench", 0, "".join(f'{{"name": "step_large", "shape": "B{b}", "value": {v}, "unit": "tokens/s"}}\n'
                                         for b, v in ((32, 90000), (128, 120000), (64, 100000))), part="speed")
        self.add("peers", 0, PEERS + '{"name": "adamw_large", "value": 3.9, "unit": "TB/s"}\n', part="speed")
        speed = self.speed(self.write()[1])
        self.assertEqual(speed["peer_large_eager"]["times_faster"], 4.0)
        self.assertNotIn("mark", speed["adamw_large"])  # whose goal is in another unit

    def test_what_is_no_number_is_shown_first_and_what_is_not_as_agreed_costs_no_report(self):
        self.add("model_gradients", 1, GRADIENTS + '{"tensor": "broken", "relative_l2": nan, "bound": 0.01}\n{"loss_curve": "cuda bf16"}\n')
        text, _ = self.write()
        self.assertLess(text.index("| broken | nan |"), text.index("| layer0.q |"))
        self.assertIn("Cannot be shown (KeyError('rms')); report.jsonl has it.", text)

    def test_what_is_printed_last_fits_and_begins_with_the_failures(self):
        for i in range(100):
            self.add(f"check{i}", 134, f"CUDA error 700 in kernel Kernel{i} " + "x" * 400)
        self.add("gpu_bench", 0, BENCH, part="speed")
        self.assertEqual(self.run_report(), 1)
        printed = self.printed.getvalue()
        self.assertLess(len(printed), 12000)
        self.assertIn("FAILED check0: exit status 134 (signal 6): CUDA error 700 in kernel Kernel0", printed)
        self.assertRegex(printed, r"\.\.\. and \d+ more failures, in report.md")
        self.assertIn("step_large                                        181,000 tokens/s, goal", printed)
        self.assertTrue(printed.endswith("out/report.md, report.tgz\n"))

    def test_a_report_that_cannot_be_written_is_still_printed(self):
        self.add("x", 1, "expected | got\n")
        self.assertIn("exit status 1: expected \\| got |", self.write()[0])
        (self.root / "out" / "report.tgz").unlink()
        (self.root / "out" / "report.tgz").symlink_to("/dev/full")
        self.assertEqual(self.run_report(), 74)
        self.assertIn("FAILED x: exit status 1: expected | got", self.printed.getvalue())
        self.assertIn("cannot write the report", self.printed.getvalue())

    def test_logs_are_shortened_until_the_archive_fits(self):
        noise = random.Random(1)
        for i in range(12):
            self.add(f"wild{i}", 0, noise.randbytes(1_500_000).hex())
        self.run_report()
        self.assertLess((self.root / "out/report.tgz").stat().st_size, 12.1e6)
        with tarfile.open(self.root / "out/report.tgz") as archive:
            self.assertIn(b"bytes left out", archive.extractfile("logs/wild0.log").read())

    def test_clocks_leftovers_and_what_the_driver_says(self):
        (self.root / "clocks.csv").write_text("345, 3201, 30, 76.5, 0, 0x0000000000000001\n1755, 3201, 60, 700.0, 100, 0x0000000000000004\n"
                                              "1980, 3201, 50, 600.0, 90, 0x0000000000000060\ntorn, 3201\n")
        (self.root / "leftovers.tsv").write_text("ranks\t77\tanyorder-train --x \n")
        (self.root / "xid.txt").write_text("NVRM: Xid (PCI:0000:01:00): 31, pid=7\n")
        text, _ = self.write()
        self.assertIn("- Clocks before: SM 345 MHz", text)
        self.assertIn("- under load: SM 1755 to 1980 MHz, median 1980, of 2 samples, throttled: hardware thermal, power cap, software thermal",
                      text.replace("\n  ", " "))
        self.assertIn("- Leftover process of ranks, killed: 77 anyorder-train", text)
        self.assertIn("- Driver: NVRM: Xid (PCI:0000:01:00): 31", text)


if __name__ == "__main__":
    unittest.main(module=None, argv=["report_test.py", "discover", "-s", str(Path(__file__).parent), "-p", "*_test.py"])
