#!/usr/bin/env python3
"""The memory of an import does not grow with the model: one layer of LLaDA-8B's shapes, whose weights are 5 GB in fp32.

Usage: import_memory_test.py BIN. The weights are zeros, in a sparse file.
"""
import json
import math
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_BYTES = 256 << 20  # programs themselves and a few pieces of 8 MiB take some 60 MiB
VOCAB, DIM, FFN = 126464, 4096, 12288
CONFIG = {"model_type": "llada", "architectures": ["LLaDAModelLM"], "vocab_size": VOCAB, "embedding_size": VOCAB, "d_model": DIM,
          "n_layers": 1, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": FFN, "max_sequence_length": 4096, "rms_norm_eps": 1e-5,
          "rope_theta": 500000.0, "block_type": "llama", "activation_type": "silu", "layer_norm_type": "rms", "rope": True,
          "weight_tying": False}
BLOCK = {"q_proj": (DIM, DIM), "k_proj": (DIM, DIM), "v_proj": (DIM, DIM), "attn_out": (DIM, DIM), "ff_proj": (FFN, DIM),
         "up_proj": (FFN, DIM), "ff_out": (DIM, FFN), "attn_norm": (DIM,), "ff_norm": (DIM,)}
SHAPES = {"wte": (VOCAB, DIM), "ln_f": (DIM,), "ff_out": (VOCAB, DIM), **{f"blocks.0.{name}": shape for name, shape in BLOCK.items()}}


def write_model(directory):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    header, end = {}, 0
    for name, shape in SHAPES.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[f"model.transformer.{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_model(root / "hf")
        subprocess.run([Path(sys.argv[1]) / "anyorder", "import", "--input", root / "hf", "--output", root / "run"], check=True,
                       timeout=300)
        rank_file, = (root / "run/checkpoints/step-000000000").glob("*.safetensors")
        elements = DIM + sum(math.prod(shape) for shape in SHAPES.values())  # with mask_emb, of query streams
        assert 4 * elements < rank_file.stat().st_size < 4 * elements + (1 << 20), rank_file.stat()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"peak resident memory {peak >> 20} MiB")
    assert peak < MOST_BYTES, peak


main()
