#!/usr/bin/env python3
"""convert_bin.py reads no pickle with a PyTorch that would run it, and nothing from outside the model's directory.

Usage: convert_bin_test.py BIN. PyTorch is a stub that tells whether it was asked to read.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = Path(sys.argv[1])
STUB = """import sys
__version__ = "{version}"
float64 = float32 = float16 = bfloat16 = int64 = int32 = uint8 = 0
def load(path, map_location, weights_only):
    print("reads", path, weights_only)
    raise RuntimeError("a stub")
"""


class ConvertBinTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.model = self.root / "model"
        self.model.mkdir()
        self.bin = self.model / "pytorch_model.bin"
        self.index = self.model / "pytorch_model.bin.index.json"
        (self.root / "torch").mkdir()
        (self.root / "secret").write_text("mine")

    def convert(self, version="2.6.0"):
        (self.root / "torch/__init__.py").write_text(STUB.format(version=version))
        return subprocess.run([sys.executable, "-B", BIN / "convert_bin.py", self.model], capture_output=True, text=True, check=False,
                              timeout=60, env={**os.environ, "PYTHONPATH": str(self.root)})

    def refused(self, status, part, **options):
        result = self.convert(**options)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(part, result.stderr)
        self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1), result.stderr)

    def test_versions_that_run_what_they_read_are_refused(self):
        self.bin.write_bytes(b"")
        for version in ("1.13.0a0", "2.5.1+cu121", "2.0"):
            self.refused(74, f"torch {version} may run what the file's author wanted (CVE-2025-32434)", version=version)
        self.refused(74, "Fetch the model as model.safetensors, which needs none, or get torch 2.6 or newer", version="2.5.1")
        for version in ("2.6.0", "2.10.0.dev2026+cpu", "3.0"):
            result = self.convert(version)
            self.assertEqual((result.returncode, result.stdout), (65, f"reads {self.bin} True\n"), result.stderr)

    def test_nothing_outside_the_directory_is_read(self):
        self.bin.symlink_to(self.root / "secret")
        self.refused(65, f"leads to '{self.root.resolve()}/secret', which is not in its directory")
        self.bin.unlink()
        os.mkfifo(self.bin)
        self.refused(65, "is not a plain file")
        self.bin.unlink()
        for name in ("../secret", "/etc/passwd", str(self.root / "secret"), 7, "..", "link"):
            (self.model / "link").unlink(missing_ok=True)
            (self.model / "link").symlink_to(self.root / "secret")
            self.index.write_text(json.dumps({"weight_map": {"a": name}}))
            self.refused(65, str(self.model))
        for text in ("[" * 200_000, '{"a":' * 200_000, "{", "[]", "{}", '{"weight_map": 3}', "\xff", " " * ((64 << 20) + 1)):
            self.index.write_text(text, encoding="latin-1")
            self.refused(65, str(self.index))

    def test_links_of_a_cache_are_followed(self):
        cache = self.root / "models--me--it"
        (cache / "blobs").mkdir(parents=True)
        (cache / "blobs/0f").write_bytes(b"")
        self.model = cache / "snapshots/1e"
        self.model.mkdir(parents=True)
        (self.model / "pytorch_model.bin").symlink_to("../../blobs/0f")
        self.assertEqual(self.convert().stdout, f"reads {self.model}/pytorch_model.bin True\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
