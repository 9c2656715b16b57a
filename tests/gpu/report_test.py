"""report.py, loss_curve.py and environment.py on recorded outputs. Usage: report_test.py"""
import json
import math
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import environment  # noqa: E402
import loss_curve  # noqa: E402
import report  # noqa: E402

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
        if outcome is not None:
            with open(self.root / "results.tsv", "a", encoding="utf-8") as file:
                file.write(f"{part}\t{name}\t{outcome}\t{seconds}\t{words}\n")
        (self.root / "logs" / f"{name}.log").write_text(log)

    def check(self, name):
        return next(check for check in report.Run(self.root).checks if check["check"] == name)

    def judged(self, *arguments, **options):
        self.add("x", *arguments, **options)
        check = self.check("x")
        return check["status"], check["note"]


class JudgeTest(Folder):
    def test_a_program_that_passes_says_how_many_tests_did(self):
        self.assertEqual(self.judged(0, ALL_PASSED), ("passed", "2 of 3 tests passed, 1 skipped"))

    def test_a_program_whose_tests_were_all_skipped_did_not_pass(self):
        self.assertEqual(self.judged(0, ALL_SKIPPED), ("skipped", "all 2 tests: no GPU: CUDA sees no device"))

    def test_failed_tests_are_named(self):
        self.assertEqual(self.judged(1, SOME_FAILED),
                         ("failed", "exit status 1: 1 of 3 tests passed, failed: Gpu/BackendTest.Gemm/CudaBF16, failed: GpuTest.Plain"))

    def test_a_crash_without_a_word_is_a_failure(self):
        self.assertEqual(self.judged(139, ""), ("failed", "exit status 139: no output"))

    def test_what_ran_past_its_limit_is_cut_off_with_its_last_words(self):
        for outcome in (124, 137):
            self.assertEqual(self.judged(outcome, CUT_OFF, seconds=60), ("cut off", "after 60 s: [ RUN      ] AttentionTest.Causal"))

    def test_what_was_killed_before_its_limit_failed(self):
        self.assertEqual(self.judged(137, "Killed\n", seconds=3)[0], "failed")

    def test_what_had_no_time_left_is_cut_off(self):
        self.assertEqual(self.judged("no-time", words="the part's time was used up before"), ("cut off", "the part's time was used up before"))

    def test_a_check_that_the_script_did_not_come_to_is_cut_off(self):
        self.assertEqual(self.judged(None), ("cut off", "the script was ended before this check was"))

    def test_without_a_gpu_a_check_is_not_run(self):
        self.assertEqual(self.judged("no-gpu", words="no driver"), ("not run", "no GPU: not run (no driver)"))

    def test_under_a_driver_that_is_too_old_a_check_is_not_run(self):
        self.assertEqual(self.judged("old-driver", words="driver of CUDA 12.4 too old for CUDA 13.0"),
                         ("not run", "not run: driver of CUDA 12.4 too old for CUDA 13.0"))

    def test_a_program_that_is_missing_is_a_failure_where_it_could_be(self):
        self.assertEqual(self.judged("no-program", words="gpu.x is not in this build")[0], "failed")
        self.write_environment(gpus="1", cuda_backend="no")
        self.assertEqual(self.judged("no-program", words="gpu.x is not in this build"), ("skipped", "gpu.x is not in this build, which has no CUDA backend"))

    def test_a_skipped_check_says_why(self):
        self.assertEqual(self.judged(77, "some output\nskipped: this build has no train.device\n"), ("skipped", "this build has no train.device"))

    def test_the_sanitizers_summary_is_quoted(self):
        self.assertEqual(self.judged(0, SANITIZED), ("passed", "2 of 3 tests passed, 1 skipped; ERROR SUMMARY: 0 errors"))
        self.assertEqual(self.judged(1, "========= Error: Device not supported\n")[0], "skipped")


class ExitStatusTest(Folder):
    def status(self, *outcomes, gpus="1"):
        self.write_environment(gpus=gpus)
        for number, outcome in enumerate(outcomes):
            self.add(f"c{number}", outcome, seconds=60 if outcome == 124 else 1)
        return report.Run(self.root).exit_status()

    def test_0_when_all_passed_or_were_skipped(self):
        self.assertEqual(self.status(0, 77), 0)

    def test_1_when_one_failed_whatever_else_happened(self):
        self.assertEqual(self.status(0, 124, 1), 1)

    def test_2_when_one_was_cut_off(self):
        self.assertEqual(self.status(0, 124), 2)

    def test_77_without_a_gpu(self):
        self.assertEqual(self.status(0, "no-gpu", gpus="0"), 77)
        self.assertEqual(self.status(0, gpus="0"), 77)

    def test_77_with_a_driver_that_is_too_old(self):
        self.assertEqual(self.status(0, "old-driver"), 77)

    def test_a_failure_without_a_gpu_is_a_failure(self):
        self.assertEqual(self.status(1, "no-gpu", gpus="0"), 1)


class ReportTest(Folder):
    def write(self):
        run = report.Run(self.root)
        report.write_report(run, 412)
        records = [json.loads(line) for line in (self.root / "report.jsonl").read_text().splitlines()]
        return (self.root / "report.md").read_text(), records

    def speed(self, records):
        return {record["name"]: record for record in records if record["kind"] == "speed"}

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
        self.assertEqual(records[-1], {"kind": "summary", "summary": "4 passed, 1 failed, 1 cut off", "seconds": 412, "exit_status": 1,
                                       "not_measured": ["step_base", "attention_backward_a"]})

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
        self.add("peers", 0, PEERS, part="speed")
        self.assertEqual(self.speed(self.write()[1])["peer_large_eager"]["times_faster"], 4.0)

    def test_a_goal_is_not_compared_in_another_unit(self):
        self.add("gpu_bench", 0, '{"name": "adamw_large", "value": 3.9, "unit": "TB/s"}\n', part="speed")
        self.assertNotIn("mark", self.speed(self.write()[1])["adamw_large"])

    def test_without_a_gpu_both_files_say_so(self):
        self.write_environment(gpus="0", no_gpu="no driver")
        self.add("backend_suite", "no-gpu", words="no driver")
        text, records = self.write()
        self.assertIn("no GPU: not run (no driver)", text)
        self.assertIn("Nothing was measured.", text)
        self.assertEqual(records[-1]["exit_status"], 77)

    def test_words_of_a_log_cannot_break_the_table(self):
        self.add("x", 1, "expected | got\n")
        self.assertIn("exit status 1: expected \\| got |", self.write()[0])


def curve(noise):
    return {step: 7.0 * math.exp(-step / 100) + 4 + noise * math.sin(step) for step in range(1, 201)}


class LossCurveTest(unittest.TestCase):
    def passed(self, *curves):
        return [record["passed"] for record in loss_curve.compare([curve(0), curve(1e-3), *curves]) if "passed" in record]

    def test_rounding_as_large_as_the_cpus_passes(self):
        self.assertEqual(self.passed(curve(1e-5), curve(-2.5e-3)), [True, True])

    def test_more_than_three_times_that_fails(self):
        self.assertEqual(self.passed(curve(1e-5), curve(3.5e-3)), [True, False])

    def test_fp32_may_not_be_farther_than_bf16_is(self):
        self.assertEqual(self.passed(curve(1.1e-3), curve(1e-3)), [False, True])

    def test_one_step_that_leaps_fails(self):
        leaping = curve(1e-5)
        leaping[77] += 0.004
        self.assertEqual(self.passed(leaping, curve(1e-3)), [False, True])

    def test_a_loss_that_is_not_a_number_fails(self):
        broken = curve(1e-3)
        broken[5] = math.nan
        self.assertEqual(self.passed(curve(0), broken), [True, False])


class EnvironmentTest(unittest.TestCase):
    def test_the_newest_library_of_the_first_folder_that_has_one(self):
        with tempfile.TemporaryDirectory() as root:
            for name in ("a/libx.so", "b/libx.so.9", "b/libx.so.12", "b/libx.so.12.1.0", "c/libx.so.13"):
                path = Path(root, name)
                path.parent.mkdir(exist_ok=True)
                path.touch()
            folders = [f"{root}/{folder}" for folder in "abc"]
            self.assertEqual(environment.find_library("libx", folders), f"{root}/b/libx.so.12")
            self.assertIsNone(environment.find_library("liby", folders))

    def test_versions_are_read_from_numbers(self):
        self.assertEqual(environment.cuda_version(13000), "13.0")
        self.assertEqual(environment.cuda_version(12080), "12.8")

    def test_a_driver_is_too_old_if_its_major_version_is_lower_than_the_builds(self):
        def old(driver, backend="yes, toolkit 13.1"):
            return environment.old_driver({"driver_cuda": driver, "cuda_backend": backend})

        self.assertEqual(old("12.8"), "driver of CUDA 12.8 too old for CUDA 13.1")
        self.assertEqual([old("13.0"), old("14.0"), old("12.8", "no"), old("")], ["", "", "", ""])
        self.assertEqual(environment.old_driver({}), "")

    def test_the_toolkit_of_a_build_is_its_compilers(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertIsNone(environment.compilers_toolkit(root))
            path = Path(root, "CMakeFiles/3.25.1/CMakeCUDACompiler.cmake")
            path.parent.mkdir(parents=True)
            path.write_text('set(CMAKE_CUDA_HOST_COMPILER_VERSION "12.2")\nset(CMAKE_CUDA_COMPILER_VERSION "13.0.88")\n')
            self.assertEqual(environment.compilers_toolkit(root), "13.0")

    def asked(self, script):
        """What nvidia_smi says of three fields and how often it asked, with a program that pretends."""
        with tempfile.TemporaryDirectory() as root:
            program = Path(root, "nvidia-smi")
            program.write_text(f"#!/bin/sh\necho >>{root}/calls\n{script}\n")
            program.chmod(0o755)
            with mock.patch.dict("os.environ", PATH=f"{root}:/usr/bin:/bin"):
                return list(environment.nvidia_smi(("driver_version", "name", "new.field"))), len(Path(root, "calls").read_text())

    def test_nvidia_smi_is_asked_once_for_all(self):
        self.assertEqual(self.asked("echo '580.1, NVIDIA H200, 7 W'; echo '580.1, another, 8 W'"),
                         ([("driver", "580.1"), ("gpu name", "NVIDIA H200"), ("gpu new.field", "7 W")], 1))

    def test_a_field_that_it_does_not_know_costs_only_itself(self):
        script = "case $1 in *new.field*) echo 'Field \"new.field\" is not a valid field to query.'; exit 2 ;; *=name) echo X ;; *) echo 470 ;; esac"
        self.assertEqual(self.asked(script), ([("driver", "470"), ("gpu name", "X")], 4))


if __name__ == "__main__":
    unittest.main()
