#!/usr/bin/env bash
# Random kills and signals against real runs; README.md. E.g. tests/faults/run.sh --runs 70
# --signals 20 --seed 1
set -eu
exec python3 "$(dirname "${BASH_SOURCE[0]}")/faults.py" "$@"
