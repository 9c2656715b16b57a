#!/usr/bin/env bash
# One whole-program case of check.sh: the real programs, a tiny model, this project's own documentation as text.
#
# Usage: training.sh BIN_DIR WORK_DIR CASE      Exit status 0 passed, 1 failed, 77 skipped; the last line says why.
set -u
bin=$1 work=$2 name=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$work" && cd "$work" || exit 1

fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

# The text is prepared once, by the first case that needs it.
prepare() {
  [ -e shards/spiece.model ] && return
  local text=$root/data/readmes.txt
  if [ ! -e "$text" ]; then
    text=$work/readmes.txt
    find "$root" -name '*.md' -not -path '*/build*' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$text"
  fi
  rm -rf shards
  "$bin/anyorder" prep --input "$text" --output shards --vocab-size 1000 --no-filter --no-dedup >prep.log 2>&1 || fail "prep: $(tail -n 1 prep.log)"
}

# launch RUN [options...]
compose() {
  local run=$1
  shift
  command=("$bin/anyorder" launch --config "$here/tiny.toml" --run-dir "$run" --set data.shards=shards "$@")
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
# steps_of_seconds SECONDS METRICS: how many steps such a run does in that time; a multiple of ten from 40 to 6000.
steps_of_seconds() {
  sed -n 's/.*"step_ms":\([0-9.]*\).*/\1/p' "$2" | sort -g | awk -v seconds="$1" '
    { times[NR] = $1 }
    END {
      if (NR == 0) exit 1
      median = times[int((NR + 1) / 2)]
      steps = 10 * int(100 * seconds / (median > 0.001 ? median : 0.001))
      print (steps < 40 ? 40 : steps > 6000 ? 6000 : steps)
    }'
}
has_device_key() {
  prepare
  CUDA_VISIBLE_DEVICES="" launch key --set train.device=cpu --set model.dtype=fp32 --set train.steps=1 || ! grep -q 'device' key.log
}
# Whether a run was refused because of a processor without instructions for bf16, as many beside A100s are.
lacks_bf16() { grep -q "no native bf16" "$1"; }

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
  prepare
  has_device_key || skip "this build has no train.device"
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
  prepare
  for run in repeat1 repeat2; do expect_launch $run --set train.device=cuda --set train.steps=40 --set checkpoint.every=40; done
  expect_same_state repeat1 repeat2 ;;

ranks)
  # Two ranks share the GPU and pass their data through the host.
  prepare
  for ranks in 1 2; do expect_launch ranks$ranks --ranks $ranks --set train.device=cuda --set train.steps=20 --set checkpoint.every=20; done
  expect_same_state ranks1 ranks2 ;;

nccl)
  # One rank has nobody to talk to, but NCCL's library, its versions, start and end, and the order of its stream beside ours.
  prepare
  options=(--set train.device=cuda --set train.steps=20 --set checkpoint.every=20)
  expect_launch without "${options[@]}" --set dist.transport=mpi
  launch with "${options[@]}" --set dist.transport=nccl || {
    status=$?
    ! grep -q 'no NCCL: ' with.log || skip "$(grep -o 'no NCCL: .*' with.log | head -n 1)"
    fail "with ended with status $status: $(tail -n 2 with.log)"
  }
  expect_same_state without with ;;

resume)
  prepare
  # Long enough for a signal to come in time, on devices with steps of one millisecond as on those with hundreds.
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

loss_curve)
  prepare
  for device in cpu cuda; do
    for dtype in fp32 bf16; do
      launch $device-$dtype --set train.device=$device --set model.dtype=$dtype && continue
      status=$?
      ! lacks_bf16 $device-$dtype.log || skip "this processor has no bf16, whose rounding is the measure of how far the curves may lie apart"
      fail "$device-$dtype ended with status $status: $(tail -n 2 $device-$dtype.log)"
    done
  done
  python3 "$here/loss_curve.py" cpu-fp32/metrics.jsonl cpu-bf16/metrics.jsonl cuda-fp32/metrics.jsonl cuda-bf16/metrics.jsonl ;;

*) echo "unknown case '$name'"; exit 64 ;;
esac
