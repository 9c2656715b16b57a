#!/usr/bin/env python3
"""Converts the PyTorch weights (.bin) of a Hugging Face model to model.safetensors, which `anyorder import` reads.

Usage: convert_bin.py DIR [OUTPUT]       OUTPUT: default DIR/model.safetensors; must not exist

Reads DIR/pytorch_model.bin, or the files that DIR/pytorch_model.bin.index.json names. Every tensor keeps its name, shape,
type and bytes. Needs Python's torch, 2.6 or newer, and nothing else; the build and the other programs need neither.
Exit statuses: 0 done, 64 bad command line, 65 bad input, 74 torch is missing or too old, or the output could not be written.
"""
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/prep"))  # in the source tree
import foreign_files
import safetensors_writer
from safetensors_writer import fail

# Before, even what asks for nothing but weights runs what their author wanted (CVE-2025-32434).
LEAST_TORCH = (2, 6)


def files_of(directory):
    single, index = "pytorch_model.bin", "pytorch_model.bin.index.json"
    try:
        if os.path.lexists(os.path.join(directory, single)):
            return [foreign_files.inside(directory, single)]
        if not os.path.lexists(os.path.join(directory, index)):
            raise ValueError(f"'{directory}' has neither {single} nor {index}")
        names = list(foreign_files.read_object(directory, index)["weight_map"].values())
        if not all(name == os.path.basename(name) for name in names):
            raise ValueError(f"'{directory}/{index}' is damaged: it names files of other directories")
        return [foreign_files.inside(directory, name) for name in sorted(set(names))]
    except (OSError, ValueError) as error:
        fail(65, f"{error}; fetch the model again")
    except (KeyError, AttributeError, TypeError) as error:
        fail(65, f"'{directory}/{index}' is damaged ({error}); fetch it again")


def load(torch, paths):
    types = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
             torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8"}
    tensors = {}
    for path in paths:
        try:
            # Only tensors: a pickle may otherwise run whatever its author wanted.
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds
            fail(65, f"'{path}' cannot be read as PyTorch weights: {str(error).splitlines()[0]}")
        for name, tensor in state.items():
            if not isinstance(tensor, torch.Tensor) or tensor.dtype not in types:
                fail(65, f"'{path}': '{name}' is {getattr(tensor, 'dtype', type(tensor).__name__)}, no tensor of "
                         f"{', '.join(types.values())}")
            if name in tensors:
                fail(65, f"'{path}': tensor '{name}' is in another file, too; fetch the files again")
            flat = tensor.detach().contiguous().flatten()
            tensors[name] = (types[tensor.dtype], tensor.shape, tensor.element_size(),
                             lambda flat=flat: flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return tensors


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        fail(64, "usage: convert_bin.py DIR [OUTPUT]")
    directory = sys.argv[1]
    output = sys.argv[2] if len(sys.argv) == 3 else os.path.join(directory, "model.safetensors")
    if not os.path.isdir(directory):
        fail(64, f"'{directory}' is not a directory")
    if os.path.lexists(output):
        fail(64, f"'{output}' exists; remove it or name another output")
    paths = files_of(directory)
    try:
        import torch
        version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
        fault = f"{torch.__version__} may run what the file's author wanted (CVE-2025-32434)" if version < LEAST_TORCH else ""
    except ImportError:
        fault = "is missing"
    if fault:
        fail(74, f"Python's torch {fault}; nothing was written. Fetch the model as model.safetensors, which needs none, or get torch 2.6 or "
                 "newer: python3 -m venv venv && venv/bin/pip install 'torch>=2.6', then run this with venv/bin/python")
    tensors = load(torch, paths)
    try:
        safetensors_writer.write(tensors, output)
    except OSError as error:
        fail(74, f"'{output}' was not written: {error.strerror}")
    print(f"wrote {len(tensors)} tensors to {output}")


main()
