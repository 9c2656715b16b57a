#!/usr/bin/env bash
# Runs a comparison of this folder with the interpreter that has the other implementation.
set -euo pipefail
cd "$(dirname "$0")"
export PYTHONDONTWRITEBYTECODE=1  # no caches among the sources
exec "${ANYORDER_PARITY_PYTHON:-python3}" "$@"
