#!/usr/bin/env python3
"""Clang reads every source that takes a lock (core/base/mutex.h), or whose header has one, and writes no file.

With -Wthread-safety it proves that what is ABSL_GUARDED_BY a lock is touched only with it.
Usage: check_thread_safety.py ROOT BUILD   (exit 1: faults; 77: no clang)
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NEWEST_CLANG, OLDEST_CLANG = 21, 14
USE = re.compile(r"\bMutex(Lock)?\b")
EMULATOR = "tests/emulated_gpu/block.h"  # has C++20 that clang 14 to 18 lack
# What only g++ knows, and what is to be written where. Libstdc++ 12 itself uses what it deprecates.
DROPPED = re.compile(r"-c|-o|.*\.(o|cc|cxx)|-W.*|-O.*|-fopenmp")
FLAGS = ["-fsyntax-only", "-Werror", "-Wthread-safety", "-Wthread-safety-beta", "-Wno-unknown-pragmas",
         "-Wno-deprecated-declarations"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def find_clang():
    """The newest one and its version, or None."""
    for name in [f"clang++-{version}" for version in range(NEWEST_CLANG, OLDEST_CLANG - 1, -1)] + ["clang++"]:
        if shutil.which(name):
            version = subprocess.run([name, "-dumpversion"], capture_output=True, text=True, check=True).stdout
            return name, int(version.split(".")[0])
    return None


def faults_of(clang, words, text):
    """What clang says of the source `text`; "" if it finds nothing."""
    done = subprocess.run([clang, *FLAGS, *words, "-x", "c++", "-"], input=text, capture_output=True, text=True,
                          check=False)
    return done.stderr if done.returncode else ""


def own_includes(root, path):
    names = [os.path.relpath(root / name, root) for name in INCLUDE.findall((root / path).read_text())]
    return [name for name in names if (root / name).is_file()]


def uses_lock(root, path):
    return USE.search((root / path).read_text()) is not None


def holds_lock(root, path):
    """Whether the source, its own header, or a header without a source that it includes, has a lock. Others only call."""
    own = str(Path(path).with_suffix(""))
    return uses_lock(root, path) or any(
        uses_lock(root, name) for name in own_includes(root, path)
        if name == f"{own}.h" or not (root / name).with_suffix(".cc").is_file())


def includes_emulator(root, path):
    seen, stack = set(), [path]
    while stack:
        path = stack.pop()
        if path not in seen:
            seen.add(path)
            stack += own_includes(root, path)
    return EMULATOR in seen


def units(root, entries, version):
    """The flags of each command of the build, and those of its sources that hold locks."""
    for entry in entries:
        path = os.path.relpath(entry["file"], root)
        if not path.endswith((".cc", ".cxx")):
            continue
        sources = own_includes(root, path) if path.endswith(".cxx") else [path]
        sources = [source for source in sources if holds_lock(root, source)]
        if version < 19:
            sources = [source for source in sources if not includes_emulator(root, source)]
        if sources:
            yield [word for word in shlex.split(entry["command"])[1:] if not DROPPED.fullmatch(word)], sources


def main():
    root, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    found = find_clang()
    if found is None:
        print(f"SKIP: no clang++ from {OLDEST_CLANG} on; launcher/install_packages.sh tests installs it")
        return 77
    clang, version = found
    work = list(units(root, json.loads((build / "compile_commands.json").read_text()), version))

    def check(unit):
        words, sources = unit
        return faults_of(clang, words, "".join(f'#include "{root / source}"\n' for source in sources))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        faults = [text for text in threads.map(check, work) if text]
    print("\n".join(faults) + f"{clang}: {sum(len(sources) for _, sources in work)} sources that hold locks,"
          f" {len(faults)} of {len(work)} compilations with faults")
    return 1 if faults or not work else 0


if __name__ == "__main__":
    sys.exit(main())
