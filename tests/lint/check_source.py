#!/usr/bin/env python3
"""Small rules that a reader would otherwise have to hold in mind. Usage: check_source.py ROOT

- no exceptions thrown in our own code (Status and ANYORDER_CHECK instead);
- JSON is printed by DumpJson alone: nlohmann's dump() throws where text is not UTF-8;
- JSON is parsed by core/base/json_members.h alone, which has limits: a deep value ends the program;
- #pragma once in every header; files of at most 600 lines; no tabs or trailing blanks;
- comment lines of sources, scripts and configurations, and prose of Markdown, at most 100 columns;
- every folder of the house has a README.md; internal links and pictures of READMEs lead somewhere,
  and the front page stays short;
- the ranges of versions in launcher/package are the same for CMake and for readers.
"""
import re
import subprocess
import sys
from pathlib import Path

HOUSE = ["core", "dist", "kernels", "data", "launcher", "ckpt", "configs", "slurm", "tests"]
MAX_LINES = 600
MAX_COLUMNS = 100
MAX_FRONT_PAGE = 125
SOURCES = (".h", ".cc", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".toml", ".cmake", ".in", "CMakeLists.txt")


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
        if re.search(r"(\.|->)dump\(", code) and not path.startswith("tests/") \
                and path != "core/base/json_members.h":
            yield f"{path}:{number}: print JSON by DumpJson of core/base/json_members.h"
        if re.search(r"(?<!\btoml)::(parse|accept|sax_parse)\(|>>\s*\w*[jJ]son\b|\"_json\b", code) \
                and not path.startswith(("tests/", "core/base/json_members.")):
            yield f"{path}:{number}: parse JSON by TryParseJson or ParseJsonObject of core/base/json_members.h"
        if "\t" in line or line != line.rstrip():
            yield f"{path}:{number}: tab or trailing blank"


def comment_faults(path, text):
    mark = "//" if path.endswith(SOURCES) else "#"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS and line.lstrip().startswith(mark):
            yield f"{path}:{number}: comment of {len(line)} columns (limit {MAX_COLUMNS})"


def prose_faults(path, text):
    """Markdown but tables, headings, link definitions, HTML and code."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif len(line) > MAX_COLUMNS and not is_code and not re.match(r"\||#|<|\[[^]]+\]: |    ", line):
            yield f"{path}:{number}: prose of {len(line)} columns (limit {MAX_COLUMNS})"


def version_faults(folder):
    held = re.findall(r'^ *anyorder_dependency\("?([^"]+?)"? ([\d.]+) ([\d.]+) ',
                      (folder / "dependencies.cmake").read_text(), re.M)
    told = re.findall(r"^\| ([^|]+?) \| ([\d.]+) \| ([\d.]+) \|", (folder / "README.md").read_text(),
                      re.M)
    # These two come with the compiler and with the build system.
    for row in sorted(set(held) ^ set(told)):
        if row[0] not in ("OpenMP of the C++ compiler", "CMake"):
            yield f"launcher/package: {' '.join(row)} is in only one of dependencies.cmake, README.md"


def readme_faults(root, path, text):
    if path == "README.md" and len(text.splitlines()) > MAX_FRONT_PAGE:
        yield f"{path}: {len(text.splitlines())} lines; move parts to folders (limit {MAX_FRONT_PAGE})"
    for link in re.findall(r"(?:\]\(|src=\")([^)#:\"]+)(?:#[^)]*)?[)\"]", text):
        if not (root / path).parent.joinpath(link).exists():
            yield f"{path}: link to {link} leads nowhere"


def main():
    root = Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    faults = [f"{folder}: no README.md" for folder in HOUSE if not (root / folder / "README.md").exists()]
    faults += version_faults(root / "launcher/package")
    for path in listed:
        if not (root / path).exists():
            continue
        if not path.endswith((".md", *SOURCES, *SCRIPTS)):
            continue
        text = (root / path).read_text()
        if path.endswith(".md"):
            faults += [*readme_faults(root, path, text), *prose_faults(path, text)]
        else:
            faults += comment_faults(path, text)
        if path.endswith(SOURCES):
            faults += source_faults(path, text)
    print("\n".join(faults) if faults else "source rules hold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
