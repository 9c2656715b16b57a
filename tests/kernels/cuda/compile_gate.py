#!/usr/bin/env python3
"""Compiles every CUDA source for the chips that we build for and holds ptxas's report to a recorded budget.

No GPU is needed. A kernel that spills, or takes more registers than recorded, fails the gate: look at it before raising the number.
Usage: compile_gate.py ROOT [--reports DIR] INCLUDE...   Exit 77 without nvcc. Reports that the build kept (compile_kernel.sh) and that
are newer than every source are read; what has none is compiled.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    "attention_ring_forward": 252,
    "copy": 48,
    "cross_entropy": 64,
    "digest": 64,
    "embedding_backward": 128,
    "flat": 64,
    "gemm_plain": 64,
    "layernorm": 255,
    "rowwise": 64,
}
# Sources without a kernel: they launch those of others.
HOST_ONLY = {"attention"}


def kept_report(root, reports, source):
    name = source.relative_to(root / "kernels" / "cuda")
    made = [reports / f"{name}.o", reports / f"{name}.o.report"] if reports else []
    if not made or not all(path.exists() for path in made):
        return None
    newest = max(path.stat().st_mtime for folder in ("kernels", "core/base") for path in (root / folder).rglob("*.*h"))
    is_fresh = min(path.stat().st_mtime for path in made) > max(newest, source.stat().st_mtime)
    return made[1].read_text() if is_fresh else None


def compile_one(nvcc, root, includes, reports, source, folder):
    kept = kept_report(root, reports, source)
    if kept is not None:
        return source.stem, 0, kept
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-fmad=false", "-diag-suppress", "554", "-Xptxas", "-v", f"-I{root}"]
    command += [f"-I{path}" for path in includes]
    for chip in CHIPS:
        command += ["-gencode", f"arch=compute_{chip},code=sm_{chip}"]
    done = subprocess.run(command + ["-c", str(source), "-o", str(Path(folder) / (source.stem + ".o"))], capture_output=True, text=True)
    return source.stem, done.returncode, done.stdout + done.stderr


def faults_of(name, status, report):
    if status != 0:
        yield f"{name}.cu does not compile:\n" + "\n".join(line for line in report.splitlines() if "error" in line)[:2000]
        return
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
    root, includes, reports = Path(sys.argv[1]), sys.argv[2:], None
    if includes[:1] == ["--reports"]:
        reports, includes = Path(includes[1]), includes[2:]
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("SKIPPED: no nvcc on PATH or in /usr/local/cuda/bin")
        return 77
    sources = sorted((root / "kernels" / "cuda").rglob("*.cu"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda source: compile_one(nvcc, root, includes, reports, source, folder), sources))
    faults = [fault for result in results for fault in faults_of(*result)]
    print("\n".join(faults))
    return 1 if faults or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
