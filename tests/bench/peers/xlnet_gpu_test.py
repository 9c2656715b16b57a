#!/usr/bin/env python3
"""xlnet_gpu.py as far as no GPU is needed: counts, command line, the line it prints, and how it skips. Usage: xlnet_gpu_test.py"""
import contextlib
import io
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import xlnet_gpu  # noqa: E402


class CountsTest(unittest.TestCase):
    def test_published_sizes(self):
        self.assertAlmostEqual(xlnet_gpu.count_flops(xlnet_gpu.SIZES["large"]) / 1e9, 1352.9, delta=0.05)
        self.assertAlmostEqual(xlnet_gpu.count_flops(xlnet_gpu.SIZES["base"]) / 1e9, 407.4, delta=0.05)


class CommandLineTest(unittest.TestCase):
    def test_defaults_are_the_goals_case(self):
        options = xlnet_gpu.parse([])
        self.assertEqual((options.size, options.forms, options.device), ("large", ["eager", "compile"], "cuda"))
        self.assertEqual(options.batches, sorted(options.batches, reverse=True))

    def test_refuses_nonsense(self):
        for wrong in (["--size", "huge"], ["--steps", "0"], ["--batches", "0"], ["--dropout", "1"], ["--what"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                xlnet_gpu.parse(wrong)
            self.assertNotEqual(ended.exception.code, 0)


class LineTest(unittest.TestCase):
    def test_rate_and_shares_come_from_the_median(self):
        line = xlnet_gpu.line_of(xlnet_gpu.parse([]), "eager", 32, [0.5, 1.0, 3.0], 9.5, {"torch": "2"})
        self.assertEqual((line["name"], line["value"], line["ms"], line["spread"]), ("peer_large_eager", 16384.0, 1000.0, 2.5))
        self.assertAlmostEqual(line["share_of_989"], 32 * 1352.9e9 / 989.4e12, delta=1e-4)


class SkipTest(unittest.TestCase):
    def test_says_one_line_where_nothing_can_run(self):
        # An interpreter without site packages has neither torch nor transformers.
        script = Path(__file__).resolve().parent / "xlnet_gpu.py"
        done = subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True, text=True)
        self.assertEqual(done.returncode, xlnet_gpu.SKIPPED)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertTrue(done.stdout.startswith("SKIPPED: "))


if __name__ == "__main__":
    unittest.main()
