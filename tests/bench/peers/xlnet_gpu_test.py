#!/usr/bin/env python3
"""xlnet_gpu.py as far as no GPU is needed: counts, command line, the line it prints, and how it skips. Usage: xlnet_gpu_test.py"""
import contextlib
import io
import json
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
import xlnet_gpu  # noqa: E402


class CountsTest(unittest.TestCase):
    def test_published_sizes(self):
        self.assertAlmostEqual(xlnet_gpu.count_flops(xlnet_gpu.SIZES["large"]) / 1e9, 1352.9, delta=0.05)
        self.assertAlmostEqual(xlnet_gpu.count_flops(xlnet_gpu.SIZES["base"]) / 1e9, 407.4, delta=0.05)


class CommandLineTest(unittest.TestCase):
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


class PretendedTorch:
    """Where `fits` says so; the compiled form fails with `compile_error`, if there is one."""
    __version__ = "2"

    class OutOfMemoryError(RuntimeError):
        pass

    class cuda:
        OutOfMemoryError = RuntimeError
        empty_cache = staticmethod(lambda: None)

    def __init__(self, fits, compile_error=None):
        self.fits, self.compile_error, self.tried = fits, compile_error, []

    def measure(self, torch, transformers, options, form, batch):
        self.tried.append((form, batch))
        if not self.fits(batch):
            raise self.OutOfMemoryError("CUDA out of memory")
        if form == "compile" and self.compile_error:
            raise self.compile_error
        return [1.0], 9.0


class FormsTest(unittest.TestCase):
    def run_main(self, torch, status=0):
        out, errors = io.StringIO(), io.StringIO()
        with mock.patch.object(xlnet_gpu, "load_torch", lambda device: (torch, torch)), \
                mock.patch.object(xlnet_gpu, "measure", torch.measure), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            self.assertEqual(xlnet_gpu.main(["--batches", "64", "32", "16"]), status)
        return [json.loads(line) for line in out.getvalue().splitlines()], errors.getvalue()

    def test_compiled_form_begins_where_the_eager_one_fitted(self):
        torch = PretendedTorch(lambda batch: batch <= 32)
        lines, errors = self.run_main(torch)
        self.assertEqual(torch.tried, [("eager", 64), ("eager", 32), ("compile", 32)])
        self.assertEqual([line["name"] for line in lines], ["peer_large_eager", "peer_large_compile"])
        self.assertEqual(errors, "")

    def test_compiler_that_fails_leaves_the_eager_form(self):
        torch = PretendedTorch(lambda batch: True, RuntimeError("Failed to find C compiler.\nmore"))
        lines, errors = self.run_main(torch)
        self.assertEqual([line["name"] for line in lines], ["peer_large_eager"])
        self.assertEqual(errors, "xlnet_gpu: large compile: RuntimeError: Failed to find C compiler.\n")

    def test_eager_form_that_fails_is_a_failure(self):
        def fits(batch):
            raise ValueError("no such argument")
        lines, errors = self.run_main(PretendedTorch(fits), status=1)
        self.assertEqual(lines, [])
        self.assertIn("large eager: ValueError: no such argument", errors)

    def test_gpu_that_is_too_small_is_said_once_a_form(self):
        lines, errors = self.run_main(PretendedTorch(lambda batch: False))
        self.assertEqual(lines, [])
        self.assertEqual(errors.count("not even 16 sequences fit this GPU"), 2)


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
