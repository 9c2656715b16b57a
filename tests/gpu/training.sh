#!/usr/bin/env bash
# One whole-program case of check.sh: the real programs, a tiny model, this project's own
# documentation as text.
#
# Usage: training.sh BIN_DIR WORK_DIR CASE Exit status 0 passed, 1 failed, 77 skipped; the last line
# says why. ANYORDER_CPU_CURVES names the file of the CPU's losses, which the case cpu_curves writes
# and loss_curve reads.
set -u
bin=$1 work=$2 name=$3 curves=${ANYORDER_CPU_CURVES:-$2/cpu_curves.json}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$work" && cd "$work" || exit 1

fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

set_text() {
  text=$root/data/readmes.txt
  [ ! -e "$text" ] || return
  text=$work/readmes.txt
  find "$root" -name '*.md' -not -path '*/build*' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$text"
}

# The text is prepared once, by the first case that needs it.
prepare() {
  set_text
  [ -e shards/spiece.model ] && return
  rm -rf shards
  "$bin/anyorder" prep --input "$text" --output shards --vocab-size 1000 --no-filter --no-dedup >prep.log 2>&1 || fail "prep: $(tail -n 1 prep.log)"
}

# launch RUN [options...]
config=$here/tiny.toml
compose() {
  local run=$1
  shift
  command=("$bin/anyorder" launch --config "$config" --run-dir "$run" --set data.shards=shards "$@")
}
launch() {
  compose "$@"
  rm -rf "$1"
  "${command[@]}" >"$1.log" 2>&1
}
expect_launch() { launch "$@" || fail "$1 ended with status $?: $(tail -n 2 "$1.log")"; }
# Of the run's last checkpoint.
digest() {
  local last
  last=$(ls -d "$1"/checkpoints/step-*[0-9] 2>/dev/null | tail -n 1)
  "$bin/anyorder" inspect "${last:?$1 has no checkpoint}" --json | sed -n 's/.*"state_digest": "\(.*\)".*/\1/p'
}
expect_same_state() {
  local one two
  one=$(digest "$1") two=$(digest "$2")
  [ -n "$one" ] && [ "$one" = "$two" ] || fail "$1 ends in ${one:-no state}, $2 in ${two:-no state}"
  echo "$1 and $2 end in $one"
}
# median_ms METRICS FIRST [KEY]: of the times of steps, or of their part KEY, from line FIRST on.
median_ms() {
  sed -n "$2,\$"'s/.*"'"${3:-step_ms}"'":\([0-9.]*\).*/\1/p' "$1" | sort -g | awk '{ times[NR] = $1 } END { if (NR == 0) exit 1; print times[int((NR + 1) / 2)] }'
}
# steps_of_seconds SECONDS METRICS: how many steps such a run does in that time; a multiple of ten
# from 40 to 6000.
steps_of_seconds() {
  local ms
  ms=$(median_ms "$2" 1) && awk -v seconds="$1" -v ms="$ms" 'BEGIN {
    steps = 10 * int(100 * seconds / (ms > 0.001 ? ms : 0.001))
    print (steps < 40 ? 40 : steps > 6000 ? 6000 : steps)
  }'
}
# report_speed NAME RUN LANES TOKENS: the median of the run's later steps, as the report reads it,
# and of the parts that a step's time goes to.
report_speed() {
  local ms part
  ms=$(median_ms "$2/metrics.jsonl" 5) || fail "$2/metrics.jsonl has no times of steps"
  awk -v name="$1" -v lanes="$3" -v tokens="$4" -v ms="$ms" 'BEGIN {
    printf "{\"name\": \"%s\", \"shape\": \"B%d T%d\", \"value\": %.0f, \"unit\": \"tokens/s\", \"ms\": %.4g}\n", name, lanes, tokens, lanes * tokens * 1000 / ms, ms
  }'
  for part in data_wait_ms compute_ms reduce_ms optimizer_ms; do
    ms=$(median_ms "$2/metrics.jsonl" 5 $part) || fail "$2/metrics.jsonl has no $part"
    echo "{\"name\": \"$1_${part%_ms}\", \"shape\": \"B$3 T$4\", \"value\": $ms, \"unit\": \"ms\"}"
  done
}
# curves COMMAND...: of loss_curve.py, with the build, text and configuration that curves belong to.
curves() { python3 "$here/loss_curve.py" "$1" "$curves" --bin "$bin" --config "$config" --text "$text" "${@:2}"; }
train_curves() {
  local dtype
  for dtype in fp32 bf16; do
    launch "$1-$dtype" --set train.device="$1" --set model.dtype=$dtype ||
      fail "$1-$dtype ended with status $?: $(tail -n 2 "$1-$dtype.log")"
  done
}

[ "$name" = starts_without_driver ] || prepare
case $name in
starts_without_driver)
  # Where there is a driver, no device is all that can be pretended.
  export CUDA_VISIBLE_DEVICES=""
  for program in anyorder anyorder-train anyorder-prep anyorder-ckptd; do
    "$bin/$program" --help >help.log 2>&1 || fail "$program --help: $(tail -n 1 help.log)"
  done
  "$bin/anyorder" show --objective xlnet --length 16 >show.log 2>&1 || fail "anyorder show: $(tail -n 1 show.log)"
  echo "every program starts" ;;

no_device)
  export CUDA_VISIBLE_DEVICES=""
  launch refused --set train.device=cuda --set train.steps=1
  status=$?
  [ $status -eq 64 ] || fail "train.device=cuda without a device ends with status $status: $(tail -n 2 refused.log)"
  [ ! -e refused ] || fail "train.device=cuda without a device leaves a run directory behind"
  reason=$(grep -ih 'gpu\|cuda\|driver' refused.log | head -n 1)
  [ -n "$reason" ] || fail "train.device=cuda without a device does not say so: $(tail -n 2 refused.log)"
  expect_launch automatic --set train.device=auto --set model.dtype=fp32 --set train.steps=2
  echo "train.device=auto trains on the CPU; cuda is refused with $status: $reason" ;;

repeat)
  for run in repeat1 repeat2; do expect_launch $run --set train.device=cuda --set train.steps=40 --set checkpoint.every=40; done
  expect_same_state repeat1 repeat2 ;;

ranks)
  # Two ranks share the GPU and pass their data through the host.
  for ranks in 1 2; do expect_launch ranks$ranks --ranks $ranks --set train.device=cuda --set train.steps=20 --set checkpoint.every=20; done
  expect_same_state ranks1 ranks2 ;;

nccl)
  # One rank has nobody to talk to, but NCCL's library, its versions, start and end, and the order
  # of its stream beside ours.
  options=(--set train.device=cuda --set train.steps=20 --set checkpoint.every=20)
  expect_launch without "${options[@]}" --set dist.transport=mpi
  launch with "${options[@]}" --set dist.transport=nccl || {
    status=$?
    ! grep -q 'no NCCL: ' with.log || skip "$(grep -o 'no NCCL: .*' with.log | head -n 1)"
    fail "with ended with status $status: $(tail -n 2 with.log)"
  }
  expect_same_state without with ;;

memory)
  # Where what is kept, and what is computed again: no bit changes.
  options=(--set train.device=cuda --set train.steps=10 --set checkpoint.every=10)
  lean=(--set train.recompute=layer --set dist.leaves_per_exchange=1 --set dist.shard_weights=all --set optimizer.state=host --set dist.partials=host)
  expect_launch plain "${options[@]}"
  for ranks in 1 2; do
    expect_launch lean$ranks --ranks $ranks "${options[@]}" "${lean[@]}"
    expect_same_state plain lean$ranks
  done
  for run in plain lean1; do
    echo "$run: $(sed -n 's/.*"peak_device_bytes":\([0-9]*\).*/\1/p' $run/metrics.jsonl | tail -n 1) bytes of the GPU's memory are taken"
  done ;;

resume)
  # Long enough for a signal to come in time, on devices with steps of one millisecond as on those
  # with hundreds.
  expect_launch probe --set train.device=cuda --set train.steps=30
  steps=$(steps_of_seconds 6 probe/metrics.jsonl) || fail "probe/metrics.jsonl has no times of steps"
  first=$((steps / 10))
  options=(--set train.device=cuda --set train.steps=$steps --set checkpoint.every=$first)
  expect_launch whole "${options[@]}"
  rm -rf halves
  compose halves "${options[@]}"
  "${command[@]}" >halves.log 2>&1 &
  job=$!
  manifest=$(printf 'halves/checkpoints/step-%09d/MANIFEST.json' $first)
  for _ in $(seq 600); do
    [ ! -e "$manifest" ] || break
    sleep 0.05
  done
  [ -e "$manifest" ] || fail "no $manifest within 30 s of sleep: $(tail -n 1 halves.log)"
  kill -TERM $job
  wait $job
  status=$?
  # A run that was faster than the signal is whole as well, but says nothing.
  [ $status -ne 0 ] || skip "the run was over before it could be stopped"
  [ $status -eq 75 ] || fail "the stopped run ended with status $status: $(tail -n 2 halves.log)"
  "${command[@]}" --resume required >resumed.log 2>&1 || fail "the second half ended with status $?: $(tail -n 2 resumed.log)"
  expect_same_state whole halves ;;

cpu_curves)
  train_curves cpu
  curves pack cpu-fp32/metrics.jsonl cpu-bf16/metrics.jsonl || fail "cannot write '$curves'" ;;

loss_curve)
  if [ -e "$curves" ]; then
    curves match || exit 1
  else
    curves=$work/cpu_curves.json
    train_curves cpu
    curves pack cpu-fp32/metrics.jsonl cpu-bf16/metrics.jsonl || fail "cannot write '$curves'"
  fi
  train_curves cuda
  curves compare cuda-fp32/metrics.jsonl cuda-bf16/metrics.jsonl ;;

tuned_step)
  # XLNet-Large by the real trainer, with this text's small vocabulary, before and after its
  # products are tuned.
  config=$root/configs/xlnet-large.toml
  options=(--set train.device=cuda --set train.steps=14 --set train.global_batch_size=64 --set train.micro_batch_size=64 --set checkpoint.every=1000)
  expect_launch large "${options[@]}"
  report_speed train_large large 64 512
  rm -rf large/checkpoints  # of several gigabytes
  "$bin/anyorder" tune --run-dir large || fail "tune ended with status $?"
  expect_launch tuned "${options[@]}" --set kernels.gemm_algorithm_cache="$work/large/gemm_algorithm_cache.txt"
  report_speed train_large_tuned tuned 64 512
  echo "products are tuned" ;;

*) echo "unknown case '$name'"; exit 64 ;;
esac
