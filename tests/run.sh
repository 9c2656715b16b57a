#!/usr/bin/env bash
# Installs what is missing, builds everything with tests, runs them, and names the ten slowest.
#
# Usage: tests/run.sh [--quick] [ctest arguments]
#   e.g. tests/run.sh -L mpi   tests/run.sh -R Attention
#   --quick   leaves out the cases labelled `slow`
# Build folder: build/ (ANYORDER_BUILD_DIR overrides). Python of the comparisons with other
# implementations: installed where that is possible (ANYORDER_PARITY_PYTHON overrides); without it
# they skip, as does the check of a report's page without a browser.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ANYORDER_BUILD_DIR:-build}
quick=()
case "${1:-}" in -h|--help) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' tests/run.sh; exit 0 ;; esac
if [ "${1:-}" = --quick ]; then quick=(-LE slow); shift; fi
bash launcher/install_packages.sh tests
if [ ${#quick[@]} -eq 0 ]; then
  [ -n "${ANYORDER_PARITY_PYTHON:-}" ] || bash launcher/install_packages.sh parity || true
  command -v chromium chromium-browser google-chrome >/dev/null || bash launcher/install_packages.sh browser || true
fi
cmake --preset release -B "$build" -DANYORDER_BUILD_TESTS=ON >"${TMPDIR:-/tmp}/anyorder-configure.log" || {
  tail -n 30 "${TMPDIR:-/tmp}/anyorder-configure.log" >&2
  exit 70
}
cmake --build "$build"
# The limit is for what is stuck: cases that take a minute alone take ten on a busy machine.
run() { ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 1800 "$@"; }
slowest() {
  echo "Slowest cases:"
  awk '/^[0-9]+\/[0-9]+ Test(ing)?: / { name = $3 } /^Test time = / { printf "%9.1f s  %s\n", $4, name }' \
    "$build/Testing/Temporary/LastTest.log" | sort -rn | head -n 10 || true
}
status=0
# Most cases of processes wait half of their time.
run -j 6 "${quick[@]}" "$@" || status=$?
slowest
exit $status
