"""loss_curve.py: its bounds, and the curves that are made beforehand."""
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import loss_curve


def curve(noise):
    return {step: 7.0 * math.exp(-step / 100) + 4 + noise * math.sin(step) for step in range(1, 201)}


class LossCurveTest(unittest.TestCase):
    def test_bounds(self):
        leaping, broken = curve(1e-5), curve(1e-3)
        leaping[77] += 0.004
        broken[5] = math.nan
        for what, fp32, bf16, passed in (("rounding as large as the CPU's", curve(1e-5), curve(-2.5e-3), [True, True]),
                                         ("more than three times that", curve(1e-5), curve(3.5e-3), [True, False]),
                                         ("fp32 farther than bf16 is", curve(1.1e-3), curve(1e-3), [False, True]),
                                         ("one step that leaps", leaping, curve(1e-3), [False, True]),
                                         ("not a number", curve(0), broken, [True, False])):
            records = loss_curve.deviations([curve(0), curve(1e-3), fp32, bf16])
            self.assertEqual([record["passed"] for record in records if "passed" in record], passed, what)


class CurvesTest(unittest.TestCase):
    """Programs, a configuration, a text and metrics, as training.sh has them."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        (self.root / "bin").mkdir()
        for name in ("bin/anyorder-prep", "bin/anyorder-train", "tiny.toml", "text"):
            (self.root / name).write_text(name)
        (self.root / "MANIFEST.json").write_text('{"commit": "abc"}')
        for name, noise in (("cpu_fp32", 0), ("cpu_bf16", 1e-3), ("cuda_fp32", 1e-5), ("cuda_bf16", 2e-3), ("far", 1e-2)):
            (self.root / name).write_text("".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in curve(noise).items()))
        self.assertEqual(self.run_command("pack", "cpu_fp32", "cpu_bf16"), (0, f"{self.root}/curves.json: 200 steps of commit abc"))

    def run_command(self, command, *metrics):
        done = subprocess.run([sys.executable, loss_curve.__file__, command, self.root / "curves.json", "--bin", self.root / "bin", "--config",
                               self.root / "tiny.toml", "--text", self.root / "text", *(self.root / name for name in metrics)],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip().splitlines()[-1]

    def test_a_curve_that_lies_too_far_off_is_named(self):
        status, words = self.run_command("compare", "cuda_fp32", "far")
        self.assertEqual(status, 1)
        self.assertIn("cuda bf16 is beyond", words)

    def test_curves_of_anything_else_are_refused(self):
        for name, what in (("bin/anyorder-train", "programs"), ("tiny.toml", "configuration"), ("text", "text")):
            before = (self.root / name).read_text()
            (self.root / name).write_text("another")
            status, words = self.run_command("match")
            self.assertEqual(status, 1)
            self.assertRegex(words, rf"stale \({what} \w+, here \w+\); make it again with check.sh prepare")
            (self.root / name).write_text(before)
        (self.root / "MANIFEST.json").write_text('{"commit": "abd"}')
        self.assertIn("stale (commit abc, here abd)", self.run_command("match")[1])

    def test_a_torn_file_and_runs_of_other_lengths_are_refused(self):
        (self.root / "short").write_text('{"step": 1, "loss": 2}\n')
        self.assertEqual(self.run_command("compare", "cuda_fp32", "short")[0], 64)
        self.assertEqual(self.run_command("pack", "cpu_fp32", "short")[0], 64)
        path = self.root / "curves.json"
        path.write_text(path.read_text()[:-100])
        self.assertEqual(self.run_command("match")[0], 1)
        self.assertEqual(self.run_command("compare", "cuda_fp32", "cuda_bf16")[0], 64)
