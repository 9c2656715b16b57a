#!/usr/bin/env python3
"""Small rules that a reader would otherwise have to hold in mind. Usage: check_source.py ROOT

- no exceptions thrown in our own code (Status and ANYORDER_CHECK instead);
- #pragma once in every header; files of at most 600 lines; no tabs or trailing blanks;
- every folder of the house has a README.md; internal links of READMEs lead somewhere.
"""
import re
import subprocess
import sys
from pathlib import Path

HOUSE = ["core", "dist", "kernels", "data", "launcher", "ckpt", "configs", "slurm", "tests"]
MAX_LINES = 600


def source_faults(path, text):
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines; split it by concern (limit {MAX_LINES})"
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        yield f"{path}: header without #pragma once"
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        if re.search(r"\bthrow\b\s*[\w:]*[ (;]", code) and not path.startswith("tests/"):
            yield f"{path}:{number}: our code throws no exceptions"
        if "\t" in line or line != line.rstrip():
            yield f"{path}:{number}: tab or trailing blank"


def readme_faults(root, path, text):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (root / path).parent.joinpath(link).exists():
            yield f"{path}: link to {link} leads nowhere"


def main():
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    faults = [f"{folder}: no README.md" for folder in HOUSE if not (root / folder / "README.md").exists()]
    for path in listed:
        if not (root / path).exists():
            continue
        if path.endswith((".h", ".cc", ".cu", ".cuh")):
            faults += source_faults(path, (root / path).read_text())
        elif path.endswith(".md"):
            faults += readme_faults(root, path, (root / path).read_text())
    print("\n".join(faults) if faults else "source rules hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
