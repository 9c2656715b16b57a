#!/usr/bin/env bash
# One profile by Nsight Compute; report.py reads logs/ncu_WHAT.csv. Clocks stay as they are.
#
# Usage: profile.sh counters|timeline|timeline_llama BIN_DIR WORK_DIR NCU SECONDS
# Exit status 0 passed, 1 failed, 77 skipped; the last line says why.
#   counters  hardware counters of the kernels that goals.json has counts of, one launch for each
#             launch shape
#   timeline  the duration of every kernel of one step of XLNet-Large, in their order
#   timeline_llama  the same of llama-1.1b.toml, as a table by kernel in the log
set -u
what=$1 bin=$2 work=$3 ncu=$4 seconds=$5
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=$work/logs/ncu_$what.csv
batch=16  # of the counters; goals.json has the lanes' sizes

skip() { echo "skipped: $*"; exit 77; }
[ -n "$ncu" ] || skip "there is no ncu here"
[ -x "$bin/gpu_bench" ] || skip "gpu_bench is not in this build"
export TMPDIR=$work  # ncu locks a file there

# profile OPTION...: a table. ncu is interrupted before the check is killed, since it writes its
# rows when it ends. What is wrong with its options it says elsewhere than in the table.
profile() {
  timeout -s INT -k 8 "$seconds" "$ncu" --clock-control none --csv --page raw --print-units base --log-file "$table" "$@" 2>&1 | tee "$work/ncu.txt"
  return "${PIPESTATUS[0]}"
}
count_rows() { rows=$(grep -c '^"[0-9]' "$table" 2>/dev/null); rows=${rows:-0}; }
errors() { grep -h "$1" "$table" "$work/ncu.txt" 2>/dev/null; }

case $what in
counters)
  # One unknown name would spoil all.
  timeout 20 "$ncu" --query-metrics >"$work/ncu_metrics.txt" 2>/dev/null
  metrics=$(python3 "$here/kernel_profile.py" --metrics "$work/ncu_metrics.txt")
  options=(--filter-mode per-launch-config --launch-count 1 --kernel-name "regex:$(python3 "$here/kernel_profile.py" --kernels)")
  program=("$bin/gpu_bench" --groups "attention,rows" --batches "$batch" --sizes large --samples 1)
  echo "{\"counters_lanes\": $batch}"
  # Sampling of stalls is the part that may be missing.
  profile "${options[@]}" --metrics "$metrics,group:smsp__pcsamp_warp_stall_reasons" "${program[@]}"
  status=$?
  count_rows
  if [ "$rows" -eq 0 ] && errors '^==ERROR==.*metric' >/dev/null; then
    profile "${options[@]}" --metrics "$metrics" "${program[@]}"
    status=$?
  fi ;;
timeline)
  lanes=64
  echo "{\"timeline_lanes\": $lanes}"
  profile --profile-from-start off --cache-control none --metrics gpu__time_duration.sum "$bin/gpu_bench" --groups step_once --batches $lanes --sizes large
  status=$? ;;
timeline_llama)
  profile --profile-from-start off --cache-control none --metrics gpu__time_duration.sum "$bin/gpu_bench" --groups step_once --config "$here/llama-1.1b.toml"
  status=$?
  python3 "$here/kernel_profile.py" --times "$table" ;;
esac

count_rows
if [ "$rows" -eq 0 ]; then
  [ -z "$(errors ERR_NVGPUCTRPERM)" ] || skip "ncu may not read this machine's counters (ERR_NVGPUCTRPERM)"
  reason=$(errors '^==ERROR==' | head -n 1)
  [ -z "$reason" ] || skip "ncu: ${reason#==ERROR== }"
  [ $status -ne 0 ] || skip "ncu profiled no kernel"
  echo "FAILED: the profiled program ended with status $status"
  exit 1
fi
[ $status -eq 0 ] || { echo "FAILED: ended with status $status after $rows kernels"; exit 1; }
echo "$rows kernels"
