#!/usr/bin/env bash
# Installs what is missing, builds everything with tests, runs them.
#
# Usage: tests/run.sh [ctest arguments]     e.g. tests/run.sh -L mpi      tests/run.sh -R Attention
# Build folder: build/ (ANYORDER_BUILD_DIR overrides). Interpreter of the comparisons with other
# implementations: made where that is possible (ANYORDER_PARITY_PYTHON overrides); without one they
# skip. So does the look at a report without a browser.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ANYORDER_BUILD_DIR:-build}
bash launcher/install_packages.sh tests
[ -n "${ANYORDER_PARITY_PYTHON:-}" ] || bash launcher/install_packages.sh parity || true
command -v chromium chromium-browser google-chrome >/dev/null || bash launcher/install_packages.sh browser || true
cmake --preset release -B "$build" -DANYORDER_BUILD_TESTS=ON >"${TMPDIR:-/tmp}/anyorder-configure.log" || {
  tail -n 30 "${TMPDIR:-/tmp}/anyorder-configure.log" >&2
  exit 70
}
cmake --build "$build"
run() { ctest --test-dir "$build" --output-on-failure --no-tests=error "$@"; }
run -j 2 "$@" && exit
status=$?
# Cases of whole processes and clusters wait for things that a busy machine does late. Those that
# failed get one more try, alone, and are named; nothing else does: a number that is wrong once is
# wrong.
failed=$(cut -d: -f2- "$build/Testing/Temporary/LastTestsFailed.log")
of_processes=$(ctest --test-dir "$build" -N -L 'slurm|faults|mpi' | sed -n 's/^ *Test *#[0-9]*: //p')
[ -z "$(comm -23 <(sort -u <<<"$failed") <(sort -u <<<"$of_processes"))" ] || exit $status
run --rerun-failed -j 1 || exit
echo "UNSTEADY, failed once and passed alone: $(paste -sd' ' <<<"$failed")" >&2
