#!/usr/bin/env bash
# Runs the fuzz targets under libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer.
#
# Usage: tests/fuzz/run.sh [--seconds N] [TARGET...] e.g. tests/fuzz/run.sh --seconds 600 shard
# manifest N seconds each, 10 unless told; all targets unless named. Corpora grow in
# build-fuzz/corpus/TARGET from run to run. Needs clang++ with compiler-rt (ANYORDER_FUZZ_CXX,
# ANYORDER_FUZZ_CC name others). Build folder: build-fuzz/ (ANYORDER_FUZZ_BUILD_DIR overrides).
# Exit status: 0 nothing found; 1 a target crashed, hung or took too much memory: its input is kept
# and named; 64 wrong usage; 69 no clang; 70 the build failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${ANYORDER_FUZZ_BUILD_DIR:-$root/build-fuzz}
cxx=${ANYORDER_FUZZ_CXX:-clang++}
cc=${ANYORDER_FUZZ_CC:-clang}
seconds=10
names=$(sed -n 's/.*Register({"\([a-z_]*\)".*/\1/p' "$root"/tests/fuzz/*_fuzzers.cc)
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: --seconds takes a whole number of at least 1, not '${2:-}'" >&2; exit 64; }
      seconds=$2
      shift 2 ;;
    -*) echo "run.sh: unknown option '$1'; usage: run.sh [--seconds N] [TARGET...]" >&2; exit 64 ;;
    *)
      grep -qx "$1" <<<"$names" || { echo "run.sh: no target '$1'; there are:" $names >&2; exit 64; }
      targets+=("$1")
      shift ;;
  esac
done
command -v "$cxx" >/dev/null || { echo "run.sh: no $cxx here; install clang, or run the replays: ctest -R '^fuzz\\.'" >&2; exit 69; }
[ ${#targets[@]} -gt 0 ] || targets=($names)
mkdir -p "$build"
log=$build/build.log
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" \
  -DANYORDER_FUZZ=ON >"$log" 2>&1 &&
  cmake --build "$build" -j "${ANYORDER_FUZZ_JOBS:-2}" --target "${targets[@]/%/_fuzzer}" fuzz_replay >>"$log" 2>&1 || {
  tail -n 40 "$log" >&2
  echo "run.sh: the build failed; all of it is in $log" >&2
  exit 70
}
# Abseil's own libraries are built without AddressSanitizer: their containers carry no annotations.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
found=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  crashes=$build/crashes/$target
  mkdir -p "$corpus" "$crashes" "$build/logs"
  "$build/bin/fuzz_replay" "$target" --write-seeds "$corpus"
  status=0
  : >"$build/logs/last-$target.log"
  # Half of the time for inputs that are small and fast, which long ones are cut to.
  for most in $((16 << 10)) $((2 << 20)); do
    [ $status -ne 0 ] || "$build/bin/${target}_fuzzer" "$corpus" $(ls -d "$root/tests/fuzz/regressions/$target" 2>/dev/null || true) \
      -max_len=$most -max_total_time=$(((seconds + 1) / 2)) -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$crashes/" >>"$build/logs/last-$target.log" 2>&1 || status=$?
  done
  cat "$build/logs/last-$target.log" >>"$build/logs/$target.log"
  executions=$(awk '/^stat::number_of_executed_units/ { sum += $2 } END { print sum }' "$build/logs/last-$target.log")
  if [ $status -eq 0 ]; then
    said="$target: ${executions:-?} executions in $seconds s, nothing found"
  else
    found=1
    kept=$(sed -n 's/.*Test unit written to //p' "$build/logs/last-$target.log" | tail -n 1)
    said="$target: CRASH after ${executions:-?} executions; input kept as ${kept:-(none)}; report in $build/logs/last-$target.log"
  fi
  echo "$said"
  echo "$(date -u +%FT%TZ) $(git -C "$root" rev-parse --short HEAD 2>/dev/null || true) $said" >>"$build/logs/runs.txt"
done
exit $found
