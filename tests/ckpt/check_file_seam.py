#!/usr/bin/env python3
"""All file calls of ckpt/ go through FileSystem (core/base/file_system.h), so that tests can break each of them.

Usage: check_file_seam.py ROOT. Prints each direct call outside the seam that is not in the table below, and each entry
of the table that is no longer needed, which also shows that calls are found.
"""
import re
import sys
from pathlib import Path

CALLS = ("open openat open64 creat fopen freopen rename renameat link linkat symlink unlink unlinkat remove rmdir mkdir "
         "mkdtemp mkstemp pread pwrite preadv pwritev read write writev fsync fdatasync syncfs sync_file_range "
         "ftruncate truncate fallocate posix_fallocate opendir readdir stat fstat lstat statvfs access mmap munmap").split()
STREAMS = r"\bstd::(?:basic_)?(?:i|o)?fstream\b|\bstd::filesystem::|\bstd::(?:rename|remove|fopen|freopen)\b"
# Of core/base, what takes no FileSystem.
DIRECT = r"\bReadWholeFile\b|\bWriteFileAtomically\((?!fs)"
# What is no file of the run: sockets, memory, /proc, and the eventfd that wakes the service.
ALLOWED = {
    "protocol.cc": {"mkdir": "the socket's directory", "open": "the same, for a long path", "lstat": "its owner and mode", "unlink": "a dead socket"},
    "staging_buffer.cc": {"mmap": "memfd", "munmap": "memfd", "fstat": "memfd"},
    "service.cc": {"read": "eventfd", "write": "eventfd", "unlink": "its own socket"},
    "lease.cc": {"ReadWholeFile": "/proc"},
}


def calls_in(text):
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line.split("//")[0])
        for match in re.finditer(r"(?<![\w.>:])(?:::)?(%s)\(" % "|".join(CALLS), code):
            before = code[:match.start()].rstrip()
            # A declaration or definition of ours has a type in front of it.
            if before and re.search(r"[\w>&*]$", before) and not re.search(r"\b(return|else|do)$", before):
                continue
            yield number, match.group(1)
        for match in re.finditer(STREAMS + "|" + DIRECT, code):
            yield number, match.group(0)


def faults_of(root):
    needed = {name: set(calls) for name, calls in ALLOWED.items()}
    for path in sorted((root / "ckpt").glob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        for number, call in calls_in(path.read_text()):
            if call in ALLOWED.get(path.name, {}):
                needed[path.name].discard(call)
            else:
                yield f"ckpt/{path.name}:{number}: {call} goes past FileSystem; no test can make it fail"
    for name, calls in needed.items():
        for call in sorted(calls):
            yield f"ckpt/{name}: the table allows {call}, which is not there any more"


def main():
    faults = list(faults_of(Path(sys.argv[1])))
    print("\n".join(faults) if faults else "all file calls of ckpt go through the seam")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
