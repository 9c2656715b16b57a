#!/usr/bin/env bash
# Runs a comparison of this folder with the interpreter that has the other implementation:
# ANYORDER_PARITY_PYTHON, or what make_environment.sh made in ANYORDER_PARITY_ENVIRONMENT, or, which
# may lack it, python3.
set -euo pipefail
cd "$(dirname "$0")"
export PYTHONDONTWRITEBYTECODE=1  # no caches among the sources
# Large tensors come and go: let the allocator keep their memory, which makes transformers twice as
# fast.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000
python=${ANYORDER_PARITY_PYTHON:-}
made=${ANYORDER_PARITY_ENVIRONMENT:-}
if [ -z "$python" ] && [ -n "$made" ] && [ -e "$made/.ready" ]; then python="$made/bin/python"; fi
exec "${python:-python3}" "$@"
