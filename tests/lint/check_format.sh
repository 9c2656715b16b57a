#!/usr/bin/env bash
# clang-format leaves every source file as it is. Usage: check_format.sh ROOT (exit 77: no
# clang-format 14)
set -euo pipefail
cd "$1"
formatter=$(command -v clang-format-14 || command -v clang-format) || { echo "SKIP: clang-format is not installed"; exit 77; }
# Other versions break lines differently.
"$formatter" --version | grep -q 'version 14\.' || { echo "SKIP: $("$formatter" --version) is not version 14"; exit 77; }
git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r "$formatter" --dry-run --Werror
