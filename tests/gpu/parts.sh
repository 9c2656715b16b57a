# shellcheck shell=bash disable=SC2034,SC2154
# Part of check.sh: the checks of each part, in their order, and how long each may take.

declare -A part_seconds=([smoke]=240 [speed]=420 [depth]=480 [networks]=480 [peers]=540)
smoke_case_seconds=10

device_test() { check gpu "$1" "$2" "$bin/gpu.device_test" --gtest_filter="$3"; }
# The same by eight processes at once.
device_suite() { shards[$1]=8; device_test "$@"; }
bench() { check gpu "bench_$1" "$2" "$bin/gpu_bench" "${@:3}"; }
# One of the whole-program cases of training.sh.
training() { ANYORDER_CPU_CURVES=$curves check "$1" "$2" "$3" bash "$here/training.sh" "$bin" "$work/runs" "$2"; }

# sanitizer TOOL SUITE SECONDS: the tools are slow, and what they look for does not depend on size.
sanitizer() {
  local name=$1_$2
  set_sanitizer "$1"
  if [ ${#sanitizer[@]} -eq 0 ]; then
    check gpu "$name" 5 bash -c 'echo "there is no compute-sanitizer here"; exit 77'
  elif [ ! -x "$bin/gpu.device_test" ]; then
    check gpu "$name" 5 "$bin/gpu.device_test"
  else
    check gpu "$name" "$3" "${sanitizer[@]}" "$bin/gpu.device_test" --gtest_filter="$2.*"
  fi
}

# Everything once and small, in the order in which one thing needs another, a process each. Failures
# are diagnosed before memcheck, which has what is left.
smoke() {
  local case cases seconds
  mapfile -t cases < <(timeout 20 "$bin/gpu.device_test" --gtest_list_tests --gtest_filter='SmokeTest.*' 2>/dev/null </dev/null |
    sed -n 's/^  \([A-Za-z0-9_]*\).*/\1/p')
  [ ${#cases[@]} -gt 0 ] || check gpu smoke_cases 5 bash -c 'echo "gpu.device_test has no SmokeTest, or does not start"; exit 1'
  for case in ${cases[@]+"${cases[@]}"}; do
    seconds=$smoke_case_seconds
    # The first process on a machine loads the driver's and CUDA's libraries from a cold disk, the
    # first product hundreds of kernels.
    case $case in Queue | Gemm) seconds=$((3 * seconds)) ;; esac
    device_test "smoke_$case" $seconds "SmokeTest.$case"
  done
  after_failures
  sanitizer memcheck SmallAttentionTest 60
  sanitizer memcheck SmallModelTest 60
}

# What decides first: steps and attention. Each in a process of its own, so that a crash costs one
# number.
speed() {
  local batch
  bench ceilings 30 --groups ceilings
  for batch in 64 32 8; do bench steps_b$batch 50 --groups steps --batches $batch --sizes large; done
  for batch in 64 16; do bench attention_b$batch 40 --groups attention --batches $batch; done
  profile ncu_counters 110
  profile ncu_timeline 120
  bench gemms 40 --groups gemms --batches 64
  bench rows 30 --groups rows --batches 64
  after_failures
}
profile() { check gpu "$1" "$2" bash "$here/profile.sh" "${1#ncu_}" "$bin" "$work" "$(find_tool ncu)" $(($2 - 10)); }

# What takes seconds comes first.
depth() {
  sanitizer racecheck SmallAttentionTest 60
  sanitizer synccheck SmallAttentionTest 30
  sanitizer initcheck SmallAttentionTest 40
  training gpu repeat 60
  training gpu ranks 40
  training gpu nccl 40
  training gpu memory 60
  training any starts_without_driver 20
  training any no_device 30
  device_test production_attention 120 'ProductionAttentionTest.RingAgreesWithGeneral'
  device_test production_bits 60 'ProductionAttentionTest.SameBitsOver20Runs:GemmRepeatTest.*'
  device_test model_gradients 90 'ModelTest.*'
  training gpu resume 60
  device_suite backend_suite 120 'Device/*'
  device_suite attention 120 'AttentionTest.*'
  after_failures
}

# Networks that are not XLNet, ours and their peers at the same shapes. `network NAME CONFIG LANES
# VOCAB [OPTION...]` is a step of ours; `peer NAME LANES FORM...` one of transformers'.
networks() {
  local python=("${given[@]}" python3 "$root/tests/bench/peers/networks_gpu.py")
  network() { bench "step_$1" 60 --groups steps --config "$root/$2" --vocab "$4" --samples 8 --set "train.micro_batch_size=$3,train.global_batch_size=$3${5:+,$5}"; }
  peer() { check gpu "peer_$1_$3" 90 "${python[@]}" step "$1" --batch "$2" --forms "$3"; }
  bench ceilings_again 30 --groups ceilings
  bench plain 60 --groups plain --samples 5
  check gpu peer_attention 60 "${python[@]}" attention
  network llama-1.1b tests/gpu/llama-1.1b.toml 8 32000
  peer llama-1.1b 8 eager
  network qwen3-0.6b-diffusion configs/qwen3-0.6b-diffusion.toml 8 151936
  peer qwen3-0.6b 8 eager
  network gpt-base configs/gpt-base.toml 32 32000
  peer gpt-base 32 eager
  network bert-base configs/bert-base.toml 32 32000 objective.next_sentence=false
  peer bert-base 32 eager
  network mdlm-small configs/mdlm-small.toml 16 32000
  network llada-8b configs/llada-8b.toml 2 126464 model.num_layers=4
  peer llada-8b-4-layers 2 eager
  profile ncu_timeline_llama 60
  peer llama-1.1b 8 compile
  peer qwen3-0.6b 8 compile
  after_failures
}

# torch.compile comes last: its compilers take minutes, and what is cut off then is missed least. It
# begins with the batch that fitted before, since each that does not fit is compiled as well.
peers() {
  local batch peer=("${given[@]}" python3 "$root/tests/bench/peers/xlnet_gpu.py")
  training gpu loss_curve 120
  check gpu peer_eager 150 "${peer[@]}" --forms eager
  training gpu tuned_step 180
  batch=$(sed -n 's/.*"peer_large_eager", "shape": "B\([0-9]*\) .*/\1/p' "$work/logs/peer_eager.log" 2>/dev/null)
  check gpu peer_compile 300 "${peer[@]}" --forms compile ${batch:+--batches "$batch" $(((batch + 1) / 2))}
  after_failures
}

after_failures() {
  rerun_suspects
  diagnose_failures
  failed=() suspects=()
}

# run_part NAME [SECONDS]: the environment, once a call, and the report are within the time.
run_part() {
  local seconds=${2:-${part_seconds[$1]}} spent=0
  [ "$command" = all ] || spent=$((SECONDS - started))
  seconds=$((seconds - spent - report_seconds))
  begin_part "$1" $((seconds > 0 ? seconds : 0))
  "$1"
}

# rerun SECONDS: the checks called `names`, of whatever part.
rerun() {
  local each name end=$((started + $1 - report_seconds))
  is_listing=yes
  for each in smoke speed depth networks peers; do $each; done
  is_listing=""
  for name in "${names[@]}"; do
    [[ " ${known[*]} " == *" $name "* ]] || give_up 64 "there is no check '$name'; there are: ${known[*]}"
  done
  for each in smoke speed depth networks peers; do
    begin_part $each $((end > SECONDS ? end - SECONDS : 0))
    $each
  done
}

# The curves are those of one build, text and configuration, which is written down with them.
prepare() {
  local folder status
  folder=$(mktemp -d "${TMPDIR:-/tmp}/anyorder-check.XXXXXX") || fail 74 "cannot write to '${TMPDIR:-/tmp}'"
  ANYORDER_CPU_CURVES=$curves bash "$here/training.sh" "$bin" "$folder" cpu_curves
  status=$?
  rm -rf "$folder"
  return $status
}
