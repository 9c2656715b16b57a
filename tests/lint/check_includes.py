#!/usr/bin/env python3
"""Holds the dependency table of the house: which folder may include which, and each third-party header's one home.
Nor may files include each other in a circle: x.h and x.cc count as one.

Linking alone does not stop a wrong include, because the repository root and many system headers are on the include
path of every target. Usage: check_includes.py ROOT   (exit 1 and one line per fault)
"""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

# Folder -> folders that it may include. Lowest first: a folder includes only what stands above it,
# so that no two include each other, by whatever way round.
NETWORK = ["core/network", "core/network/heads", "core/network/layers", "core/network/tensors"]
ALLOWED = {
    "core/base": [],
    "core/liveness": ["core/base"],
    "kernels": ["core/base"],
    "kernels/reference": ["core/base", "kernels"],
    "kernels/cpu/vector": [],
    "kernels/cpu/attention": ["core/base", "kernels", "kernels/cpu/vector"],
    "kernels/cpu": ["core/base", "kernels", "kernels/cpu/attention", "kernels/cpu/vector"],
    "kernels/cuda/platform": ["core/base", "kernels"],
    "kernels/cuda/platform/device": ["core/base", "kernels/cuda/platform"],
    "kernels/cuda/platform/host": [],
    "kernels/cuda/operations": ["core/base", "kernels", "kernels/cuda/platform"],
    "kernels/cuda/gemm": ["core/base", "kernels", "kernels/cuda/operations", "kernels/cuda/platform"],
    "kernels/cuda/attention": ["core/base", "kernels", "kernels/cuda/operations",
                               "kernels/cuda/platform"],
    "kernels/cuda": ["core/base", "kernels", "kernels/cuda/gemm", "kernels/cuda/operations",
                     "kernels/cuda/platform"],
    "kernels/backends": ["core/base", "kernels", "kernels/cpu", "kernels/cuda",
                         "kernels/cuda/operations", "kernels/cuda/platform"],
    "core/config": ["core/base", "kernels"],
    "core/objective": ["core/base", "core/config", "kernels"],
    # Each folder of a system: they do not know each other.
    "core/objective/SYSTEM": ["core/base", "core/config", "core/objective", "kernels"],
    "core/objective/registry": ["core/base", "core/objective", "core/objective/SYSTEM"],
    "core/network/tensors": ["core/base", "core/config", "core/objective", "kernels"],
    "core/network/layers": ["core/base", "core/config", "core/network/tensors", "core/objective",
                            "kernels"],
    "core/network/heads": ["core/base", "core/config", "core/network/layers", "core/network/tensors",
                           "core/objective", "kernels"],
    "core/network": ["core/base", "core/config", "core/network/heads", "core/network/layers", "core/network/tensors",
                     "core/objective", "kernels"],
    "core/metrics": ["core/base"],
    "core/optim": ["core/base", "kernels"],
    "core/generate": ["core/base", "core/config", "core/objective", "kernels", *NETWORK],
    "core/generate/any_order": ["core/base", "core/config", "core/generate", "core/objective", "kernels"],
    "core/ranking": ["core/base"],
    "dist": ["core/base", "core/liveness", "core/optim", "kernels"],
    "ckpt": ["core/base", "core/liveness"],
    "data/dataset": ["core/base", "core/config"],
    "data/sampling": ["core/base", "core/config", "core/objective", "data/dataset"],
    "data/trec": ["core/base"],
    "data/prep": ["core/base", "core/config", "data/dataset"],
    "data/prep/examples": ["core/base", "core/config", "data/dataset", "data/prep"],
    "data/prep/tokens": ["core/base", "data/dataset", "data/prep"],
    "core/train/run": ["ckpt", "core/base", "core/config", "core/liveness", "core/objective",
                       "core/optim", "data/dataset", "dist", "kernels", "kernels/backends"],
    "core/train/logging": ["ckpt", "core/base", "core/liveness", "core/train/run"],
    "core/train/state": ["ckpt", "core/base", "core/config", "core/liveness", "core/objective",
                         "core/optim", "core/train/run", "data/dataset", "dist", "kernels",
                         *NETWORK],
    "core/train/health": ["core/base", "core/liveness", "core/train/run", "core/train/state", "dist",
                          "kernels", *NETWORK],
    "core/train/evaluation": ["core/base", "core/config", "core/generate", "core/metrics", "core/objective",
                              "core/train/run",
                              "data/dataset", "data/sampling", "dist", "kernels", *NETWORK],
    "core/train/plan": ["ckpt", "core/base", "core/objective", "core/train/evaluation",
                        "core/train/health", "core/train/run", "core/train/state", "dist",
                        "kernels", "kernels/backends", *NETWORK],
}
TRAIN = ["core/train/evaluation", "core/train/health", "core/train/logging", "core/train/plan",
         "core/train/run", "core/train/state"]
ALLOWED["core/train"] = ["core/base", "core/config", "core/liveness", "core/objective", "core/optim",
                         "ckpt", "data/dataset", "data/sampling", "dist", "kernels",
                         "kernels/backends", *NETWORK, *TRAIN]
# What the launcher's folders may all know.
BELOW = ["ckpt", "core/base", "core/config", "core/liveness", "core/objective", "core/train/run",
         "core/train/state", "data/dataset", *NETWORK]
ALLOWED |= {
    "launcher/process": ["ckpt", "core/base", "core/train/run", "data/dataset", "data/prep"],
    # What is known of a run directory.
    "launcher/run": [*BELOW, "launcher/process"],
    "launcher/plan": [*BELOW, "core/train/plan", "kernels/backends", "launcher/process"],
    "launcher/start": [*BELOW, "core/train/evaluation", "core/train/plan", "data/sampling", "dist",
                       "kernels/backends", "launcher/process", "launcher/run"],
    "launcher/slurm": [*BELOW, "launcher/process", "launcher/start"],
    "launcher/huggingface/families": BELOW,
    "launcher/huggingface": [*BELOW, "data/prep", "launcher/huggingface/families", "launcher/process",
                             "launcher/run"],
    "launcher/show": [*BELOW, "core/objective/SYSTEM", "data/sampling", "kernels",
                      "launcher/process", "launcher/texts"],
    "launcher/inference": [*BELOW, "core/metrics", "core/train/evaluation", "data/prep",
                           "data/prep/examples", "data/sampling", "data/trec", "kernels/backends", "kernels/cuda/gemm",
                           "launcher/process", "launcher/run"],
    "launcher/texts/blanks": ["core/base", "data/prep"],
    "launcher/texts": [*BELOW, "core/generate", "core/generate/any_order", "data/prep", "data/prep/examples",
                       "launcher/inference", "launcher/process", "launcher/run", "launcher/texts/blanks"],
    "launcher/likelihood": [*BELOW, "launcher/inference", "launcher/process", "launcher/texts"],
    "launcher/serve": [*BELOW, "data/prep", "data/prep/examples", "launcher/inference", "launcher/process",
                       "launcher/texts"],
    "launcher/ranking": [*BELOW, "core/ranking", "core/train/evaluation", "data/trec",
                         "launcher/inference", "launcher/process", "launcher/run"],
    "launcher/inspect": [*BELOW, "data/sampling", "launcher/huggingface", "launcher/process",
                         "launcher/slurm", "launcher/start"],
    "launcher/report": [*BELOW, "launcher/inspect", "launcher/process", "launcher/start"],
    "launcher/seeds": [*BELOW, "launcher/inspect", "launcher/process", "launcher/start"],
}
# The programs include anything.
ALLOWED["launcher"] = list(ALLOWED)

# Third-party header (regular expression) -> the only places that may include it.
HOMES = {
    r"mpi\.h": ["dist/"],
    r"boost/.*": ["tests/emulated_gpu/"],
    r"cuda_runtime\.h": ["kernels/cuda/"],
    r"nccl\.h": ["dist/nccl_library."],
    r"(oneapi/dnnl|dnnl|cublas).*": ["kernels/"],
    r"hdf5.*": ["data/prep/hdf5_file.", "tests/data/dataset/hdf5_reader."],
    r"sentencepiece.*": ["data/prep/sentencepiece_bridge."],
    r"toml\+\+/.*": ["core/train/"],
    r"CLI/.*": ["launcher/"],
    r"httplib\.h": ["launcher/serve/http_"],
    r"google/protobuf/.*": ["no folder (data/prep/sentencepiece_bridge.h)"],
    r"isa-l.*": ["core/base/crc32c."],
    r"xxhash\.h": ["core/base/digest."],
    r"utf8proc\.h": ["core/base/unicode.", "data/prep/", "launcher/huggingface/", "launcher/process/"],
    r"(zlib|zstd)\.h": ["data/prep/"],
}

MAX_FILES = 50
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def folder_of(path):
    folder = str(Path(path).parent)
    if folder.startswith("core/objective/") and folder != "core/objective/registry":
        return "core/objective/SYSTEM"
    return folder if folder in ALLOWED else None


def in_circles(includes):
    """What includes itself by way of others; `includes` maps each to those that it names."""
    for start in includes:
        seen, stack = set(), list(includes[start])
        while stack:
            name = stack.pop()
            if name == start:
                yield start
                break
            if name not in seen:
                seen.add(name)
                stack += includes.get(name, [])


def units_of(texts):
    """Each unit, a path without its ending, and the units that its header and its source include."""
    units = {}
    for path, text in texts.items():
        named = (INCLUDE.match(line) for line in text.splitlines())
        includes = {str(Path(match.group(2)).with_suffix("")) for match in named if match and match.group(1) == '"'}
        unit = str(Path(path).with_suffix(""))
        units.setdefault(unit, set()).update(includes - {unit})
    return units


def faults_of(path, text):
    folder = folder_of(path)
    includes_abseil = False
    includes_sentencepiece = False
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        includes_abseil |= target.startswith("absl/")
        includes_sentencepiece |= target.startswith("sentencepiece")
        target_folder = folder_of(target)
        if target.startswith("tests/"):
            yield f"{path}:{number}: nothing outside tests/ includes tests/"
        is_own = Path(target).parent == Path(path).parent
        if target_folder and not is_own and target_folder not in ALLOWED[folder]:
            yield f"{path}:{number}: {folder} may not include {target_folder} ({target})"
        for header, homes in HOMES.items():
            if re.fullmatch(header, target) and not any(path.startswith(home) for home in homes):
                yield f"{path}:{number}: <{target}> belongs in {', '.join(homes)} only"
    if includes_abseil and includes_sentencepiece:
        yield f"{path}: SentencePiece's header does not compile beside Abseil's; keep them in different files"


def crowded(listed):
    counts = Counter(str(Path(path).parent) for path in listed)
    return [f"{folder}: {count} files; give a concern a folder of its own (limit {MAX_FILES})"
            for folder, count in counts.items() if count > MAX_FILES]


def main():
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    sources = [p for p in listed if p.endswith((".h", ".cc", ".cu", ".cuh")) and not p.startswith("tests/")]
    sources = [path for path in sources if (root / path).exists()]
    texts = {path: (root / path).read_text() for path in sources}
    faults = [f"tests/lint: {folder} includes itself by way of others" for folder in in_circles(ALLOWED)]
    faults += [f"{unit}: its .h and .cc include themselves by way of other files; move what they share to one owner"
               for unit in in_circles(units_of(texts))]
    faults += [f"{path}: {Path(path).parent} is not in the table of tests/lint/check_includes.py"
               for path in sources if folder_of(path) is None]
    faults += [fault for path in sources if folder_of(path) for fault in faults_of(path, texts[path])]
    faults += crowded(listed)
    print("\n".join(faults) if faults else f"{len(sources)} files keep the include table")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
