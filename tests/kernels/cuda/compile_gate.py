#!/usr/bin/env python3
"""Holds ptxas's reports of the CUDA kernels, as the build kept them (compile_kernel.sh), to a recorded budget.

No GPU is needed. A kernel that spills, or takes more registers than recorded, fails the gate: look at it before raising the number.
Usage: compile_gate.py ROOT REPORTS
"""
import re
import sys
from pathlib import Path

CHIPS = ["80", "90a"]
# Source -> most registers that a thread of any of its kernels may take. Nothing may spill. 168:
# what three blocks of 128 threads, which the kernel asks for, have.
REGISTERS = {
    "attention_distances": 168,
    "attention_general_backward": 255,
    "attention_general_forward": 168,
    "attention_keys": 168,
    "attention_parameters": 64,
    "attention_plan": 80,
    "attention_prepare": 64,
    "attention_ring_backward": 254,
    "attention_ring_forward": 254,
    "copy": 48,
    "cross_entropy": 64,
    "digest": 64,
    "embedding_backward": 128,
    "flat": 64,
    "gemm_plain": 64,
    "head_loss": 64,
    "layernorm": 255,
    "rowwise": 64,
}
# Sources without a kernel: they launch those of others.
HOST_ONLY = {"attention"}


def faults_of(name, path):
    if not path.exists():
        yield f"{name}.cu has no report {path}; build first"
        return
    report = path.read_text()
    chips = {match for match in re.findall(r"for 'sm_(\w+)'", report)}
    if chips != set(CHIPS) and name not in HOST_ONLY:
        yield f"{name}.cu: ptxas reported for {sorted(chips)}, expected {CHIPS}"
    for match in re.finditer(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report):
        if any(int(number) for number in match.groups()):
            yield f"{name}.cu: a kernel has {match.group(0)}"
    used = [int(number) for number in re.findall(r"Used (\d+) registers", report)]
    if name in HOST_ONLY:
        return
    if name not in REGISTERS:
        yield f"{name}.cu has no budget in compile_gate.py; its kernels take up to {max(used, default=0)} registers"
    elif max(used, default=0) > REGISTERS[name]:
        yield f"{name}.cu: {max(used)} registers, budget {REGISTERS[name]}"
    print(f"{name}.cu: {len(used)} kernels for {len(CHIPS)} chips, up to {max(used, default=0)} registers")


def main():
    folder, reports = Path(sys.argv[1], "kernels/cuda"), Path(sys.argv[2])
    sources = sorted(folder.rglob("*.cu"))
    faults = [fault for source in sources for fault in faults_of(source.stem, reports / f"{source.relative_to(folder)}.o.report")]
    print("\n".join(faults))
    return 1 if faults or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
