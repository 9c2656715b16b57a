#!/usr/bin/env python3
"""The checkpoint that TensorFlow wrote into tf_release/ comes in by convert_tf.py and `anyorder import`, and out as it was.

Usage: convert_tf_test.py BIN. What each tensor must be is told here, not read from the converter.
"""
import json
import math
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).parents[2] / "ckpt"), str(Path(__file__).parent / "tf_release")]
from make import CONFIG, shapes  # noqa: E402
from read_safetensors import read  # noqa: E402

BIN = Path(sys.argv[1])
RELEASE = Path(__file__).parent / "tf_release"
# {variable: shape}, in the order of the names, which is that of the values (tf_release/make.py).
SHAPES = dict(sorted(shapes(CONFIG)))
VOCAB = CONFIG["n_token"]


def values_of(variable):
    number = list(SHAPES).index(variable)
    return [number + i / 1024 for i in range(math.prod(SHAPES[variable]))]


def expected():
    """{name: (shape, values)} of XLNetLMHeadModel."""
    whole = {"transformer.word_embedding.weight": "model/transformer/word_embedding/lookup_table",
             "transformer.mask_emb": "model/transformer/mask_emb/mask_emb", "lm_loss.bias": "model/lm_loss/bias"}
    tensors = {}
    for layer in range(CONFIG["n_layer"]):
        ours, theirs = f"transformer.layer.{layer}.", f"model/transformer/layer_{layer}/"
        whole |= {f"{ours}rel_attn.{name}": f"{theirs}rel_attn/{name}/kernel" for name in "qkvor"}
        for part in ("rel_attn", "ff"):
            whole[f"{ours}{part}.layer_norm.weight"] = f"{theirs}{part}/LayerNorm/gamma"
            whole[f"{ours}{part}.layer_norm.bias"] = f"{theirs}{part}/LayerNorm/beta"
        for name in ("layer_1", "layer_2"):
            whole[f"{ours}ff.{name}.bias"] = f"{theirs}ff/{name}/bias"
            kernel = f"{theirs}ff/{name}/kernel"
            (rows, columns), values = SHAPES[kernel], values_of(kernel)
            tensors[f"{ours}ff.{name}.weight"] = ([columns, rows], [value for column in range(columns) for value in values[column::columns]])
        for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
            variable = f"model/transformer/{name}"
            shape = SHAPES[variable][1:]
            count = math.prod(shape)
            tensors[f"{ours}rel_attn.{name}"] = (shape, values_of(variable)[layer * count:(layer + 1) * count])
    return {**tensors, **{name: (SHAPES[variable], values_of(variable)) for name, variable in whole.items()}}


def read_tensors(path):
    header, data = read(path)
    header.pop("__metadata__", None)
    return {name: (entry["shape"], [value for (value,) in struct.iter_unpack("<f", data[slice(*entry["data_offsets"])])])
            for name, entry in header.items()}


def vocabulary():
    """A SentencePiece model of XLNet's special pieces and some others."""
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<cls>", 3), ("<sep>", 3), ("<pad>", 3), ("<mask>", 3), ("<eod>", 3), ("<eop>", 4)]
    pieces += [(f"p{number}", 1) for number in range(len(pieces), VOCAB)]
    return b"".join(field(1, field(1, text.encode()) + b"\x15\0\0\x80\xbf" + bytes([0x18, kind])) for text, kind in pieces) + field(2, b"\x18\x01")


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


class ConvertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.release = self.root / "release"
        shutil.copytree(RELEASE, self.release)

    def convert(self):
        return run(sys.executable, BIN / "convert_tf.py", self.release)

    def test_values_come_through(self):
        unconverted = run(BIN / "anyorder", "import", "--input", self.release, "--output", self.root / "run")
        self.assertEqual(unconverted.returncode, 65)
        self.assertIn(f"convert it first: python3 {BIN.resolve()}/convert_tf.py {self.release}\n", unconverted.stderr)
        result = self.convert()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("pretraining does not use it: model/sequnece_summary/summary/bias\n", result.stdout)
        self.assertEqual(read_tensors(self.release / "model.safetensors"), expected())
        (self.release / "spiece.model").write_bytes(vocabulary())
        for step in (["import", "--input", self.release, "--output", self.root / "run"],
                     ["export", "--run-dir", self.root / "run", "--output", self.root / "out"]):
            result = run(BIN / "anyorder", *step)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(read_tensors(self.root / "out/model.safetensors"), expected())

    def test_a_full_disk_leaves_no_part_of_a_description(self):
        config = json.loads((RELEASE / "xlnet_config.json").read_text())
        (self.release / "xlnet_config.json").write_text(json.dumps({**config, "comment": "x" * 20000}))
        result = subprocess.run([sys.executable, BIN / "convert_tf.py", self.release], capture_output=True, text=True, check=False,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12000, 12000)))
        self.assertEqual((result.returncode, result.stderr), (74, f"convert_tf.py: '{self.release}' was not written: File too large\n"))
        self.assertTrue((self.release / "model.safetensors").exists())
        self.assertFalse((self.release / "config.json").exists())

    def refused(self, status, part):
        before = sorted(self.release.iterdir())
        result = self.convert()
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(part, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(sorted(self.release.iterdir()), before)

    def test_faults_are_named(self):
        index, data = self.release / "xlnet_model.ckpt.index", self.release / "xlnet_model.ckpt.data-00000-of-00001"
        (self.release / "config.json").write_text("{}")
        self.refused(64, "config.json' exists")
        (self.release / "config.json").unlink()
        data.write_bytes(data.read_bytes()[:-1])
        self.refused(65, "lacks bytes of 'model/transformer/word_embedding/lookup_table'")
        whole = index.read_bytes()
        for damaged in (b"", whole[:-1], whole[:200] + whole[-48:]):
            index.write_bytes(damaged)
            self.refused(65, "is damaged")
        index.unlink()
        self.refused(65, "index' cannot be read")
        index.write_bytes(whole)
        config = json.loads((RELEASE / "xlnet_config.json").read_text())
        data.write_bytes((RELEASE / data.name).read_bytes())
        for other in ({"n_layer": 3}, {"untie_r": False}):
            (self.release / "xlnet_config.json").write_text(json.dumps({**config, **other}))
            self.refused(65, "shape [2, 2, 4], which is not that of xlnet_config.json")
        layers = [json.dumps({**config, "n_layer": layers}) for layers in ("2", 2.5, float("inf"), -1, 10**12)]
        for text in ('{"n_layer": 2}', "[" * 200_000, '{"a":' * 200_000, "3", *layers):
            (self.release / "xlnet_config.json").write_text(text)
            self.refused(65, "xlnet_config.json' is damaged")
        (self.release / "xlnet_config.json").write_text(json.dumps(config))
        (self.root / "secret").write_bytes(data.read_bytes())  # its bytes would become weights
        for path in (index, data, self.release / "xlnet_config.json"):
            bytes_of_path = path.read_bytes()
            path.unlink()
            path.symlink_to(self.root / "secret")
            self.refused(65, "secret', which is not in its directory")
            path.unlink()
            path.write_bytes(bytes_of_path)
        (self.release / "xlnet_config.json").unlink()
        self.refused(65, "name the directory of an unpacked release")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
