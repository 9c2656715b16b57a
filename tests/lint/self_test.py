#!/usr/bin/env python3
"""Each lint rule is shown a file that breaks it, so that a rule that never fires is noticed."""
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True
import check_includes  # noqa: E402
import check_source  # noqa: E402
import check_thread_safety  # noqa: E402

CASES = [
    (check_includes.faults_of, "kernels/a.cc", '#include "core/objective/batch.h"\n', "may not include"),
    (check_includes.faults_of, "ckpt/a.cc", "#include <mpi.h>\n", "belongs in dist/"),
    (check_includes.faults_of, "data/a.cc", "#include <hdf5.h>\n", "belongs in data/prep/hdf5_file."),
    (check_includes.faults_of, "data/b.cc", '#include <sentencepiece_processor.h>\n#include "absl/status/status.h"\n',
     "does not compile beside"),
    (check_includes.faults_of, "dist/a.cc", '#include "tests/testing/x.h"\n', "nothing outside tests/"),
    (check_source.source_faults, "core/base/a.h", "int a;\n", "without #pragma once"),
    (check_source.source_faults, "core/base/a.cc", "\n" * 601, "split it by concern"),
    (check_source.source_faults, "core/base/a.cc", "throw std::runtime_error(a);\n", "throws no exceptions"),
    (check_source.source_faults, "core/base/a.cc", "int a; \n", "trailing blank"),
    *((check_source.source_faults, "data/a.cc", line + "\n", "parse JSON by TryParseJson")
      for line in ("auto a = Json::parse(text);", "return nlohmann::ordered_json::accept(text);", "file >> json;",
                   "Value::sax_parse(text, &sink);", "nlohmann::json a; input >> a_json;", 'auto a = R"({})"_json;')),
    (check_source.comment_faults, "core/base/a.cc", "  // " + "word " * 20 + "\n", "comment of 105 columns"),
    (check_source.comment_faults, "tests/run.sh", "# " + "word " * 20 + "\n", "comment of 102 columns"),
    (check_source.prose_faults, "core/README.md", "- " + "word " * 20 + "\n", "prose of 102 columns"),
]
LONG = "word " * 40
CLEAN = '#pragma once\n#include "core/base/status.h"\nint a;\n'
CLEAN_PROSE = f"# {LONG}\n| {LONG} |\n[a]: {LONG}\n```\n{LONG}\n```\n"

failures = 0
for rule, path, text, expected in CASES:
    if not any(expected in fault for fault in rule(path, text)):
        print(f"{rule.__module__}: no fault '{expected}' in {path}")
        failures += 1
for rule in (check_includes.faults_of, check_source.source_faults):
    if list(rule("kernels/clean.h", CLEAN)):
        print(f"{rule.__module__}: a clean file is blamed")
        failures += 1
if list(check_source.prose_faults("core/README.md", CLEAN_PROSE)):
    print("check_source: headings, tables, link definitions or code are blamed")
    failures += 1
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "dependencies.cmake").write_text('anyorder_dependency("HDF5" 1.10 1.14 libhdf5-dev "1")\n')
    Path(folder, "README.md").write_text("| HDF5 | 1.10 | 1.12 | shards |\n")
    if len(list(check_source.version_faults(Path(folder)))) != 2:
        print("check_source: ranges of versions that differ are not seen")
        failures += 1
ROOT = Path(__file__).parents[2]
LOCKED = (ROOT / "core/base/bounded_writer.cc").read_text()
clang = check_thread_safety.find_clang()
if clang is None:
    print("SKIP: no clang for check_thread_safety")
elif not check_thread_safety.holds_lock(ROOT, "core/base/bounded_writer.cc"):
    print("check_thread_safety: a file with a lock is passed over")
    failures += 1
else:
    for text, expected in (LOCKED, ""), (LOCKED.replace("const MutexLock lock(&queue.mutex);", ""), "requires holding"):
        found = check_thread_safety.faults_of(clang[0], ["-std=gnu++20", f"-I{ROOT}"], text)
        if expected not in found or bool(found) != bool(expected):
            print(f"check_thread_safety: '{expected}' is due, and it says '{found}'")
            failures += 1
print(f"{len(CASES) + 6 - failures} passed, {failures} failed")
sys.exit(1 if failures else 0)
