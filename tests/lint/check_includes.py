#!/usr/bin/env python3
"""Holds the dependency table of the house: which floor may include which, and each third-party header's one home.

Linking alone does not stop a wrong include, because the repository root and many system headers are on the include
path of every target. Usage: check_includes.py ROOT   (exit 1 and one line per fault)
"""
import re
import subprocess
import sys
from pathlib import Path

# Floor -> floors it may include besides itself. Sampling types of core/model are what data yields.
ALLOWED = {
    "core/base": set(),
    "kernels": {"core/base"},
    "core/model": {"core/base", "kernels"},
    "core/optim": {"core/base", "kernels"},
    "core/generate": {"core/base", "kernels", "core/model"},
    "dist": {"core/base", "kernels", "core/optim"},
    "data": {"core/base", "kernels", "core/model"},
    "ckpt": {"core/base"},
    "core/train": {"core/base", "kernels", "core/model", "core/optim", "dist", "data", "ckpt"},
    "launcher": {"core/base", "kernels", "core/model", "core/optim", "core/generate", "dist", "data", "ckpt", "core/train"},
}

# Third-party header (regular expression) -> the only places that may include it.
HOMES = {
    r"mpi\.h": ["dist/"],
    r"boost/.*": ["kernels/cuda/platform/"],
    r"cuda_runtime\.h": ["kernels/cuda/"],
    r"nccl\.h": ["dist/nccl_library."],
    r"(oneapi/dnnl|dnnl|cublas).*": ["kernels/"],
    r"hdf5.*": ["data/prep/hdf5_file.", "tests/data/dataset/hdf5_reader."],
    r"sentencepiece.*": ["data/prep/"],
    r"toml\+\+/.*": ["core/train/"],
    r"CLI/.*": ["launcher/"],
    r"google/protobuf/.*": ["core/train/"],
    r"isa-l.*": ["core/base/", "ckpt/", "data/"],
    r"utf8proc\.h": ["data/prep/", "launcher/process/"],
    r"(zlib|zstd)\.h": ["data/prep/"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def floor_of(path):
    return next((floor for floor in ALLOWED if path.startswith(floor + "/")), None)


def faults_of(path, text):
    floor = floor_of(path)
    includes_abseil = False
    includes_sentencepiece = False
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        includes_abseil |= target.startswith("absl/")
        includes_sentencepiece |= target.startswith("sentencepiece")
        target_floor = floor_of(target)
        if target.startswith("tests/"):
            yield f"{path}:{number}: nothing outside tests/ includes tests/"
        if target_floor and target_floor != floor and target_floor not in ALLOWED[floor]:
            yield f"{path}:{number}: {floor} may not include {target_floor} ({target})"
        for header, homes in HOMES.items():
            if re.fullmatch(header, target) and not any(path.startswith(home) for home in homes):
                yield f"{path}:{number}: <{target}> belongs in {', '.join(homes)} only"
    if includes_abseil and includes_sentencepiece:
        yield f"{path}: SentencePiece's header does not compile beside Abseil's; keep them in different files"


def main():
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    sources = [p for p in listed if p.endswith((".h", ".cc", ".cu", ".cuh")) and floor_of(p)]
    faults = [fault for path in sources for fault in faults_of(path, (root / path).read_text())]
    print("\n".join(faults) if faults else f"{len(sources)} files keep the include table")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
