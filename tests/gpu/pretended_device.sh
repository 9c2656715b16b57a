#!/usr/bin/env bash
# The programs and tools of check_script_test.sh, by the name that this is copied to. FAULTS has
# words NAME=FAULT.
set -u
tool=${0##*/} words="$*"
fault_of() { local each; for each in $FAULTS; do [ "${each%%=*}" != "$1" ] || echo "${each#*=}"; done; }

test_result() {
  if [ "$2" -eq 0 ]; then
    printf '[==========] 1 test from 1 test suite ran. (3 ms total)\n[  PASSED  ] 1 test.\n'
  else
    printf 'tests/gpu/smoke_test.cc:9: Failure\nThe difference between 1 and 2 exceeds 0.01\n[==========] 1 test from 1 test suite ran. (3 ms total)\n[  PASSED  ] 0 tests.\n'
    printf '[  FAILED  ] 1 test, listed below:\n[  FAILED  ] SmokeTest.%s\n' "$1"
    exit 1
  fi
}

commit_fault() {
  case $2 in
    segv) touch "$PRETENDED/harmed"; kill -SEGV $$ ;;
    abort)
      echo "CUDA error 700 (an illegal memory access) in kernel AttentionRingForwardKernel"
      [ -z "${CUDA_COREDUMP_FILE:-}" ] || touch "${CUDA_COREDUMP_FILE/\%p/1}"
      kill -ABRT $$ ;;
    hang) echo $$ >>"$PRETENDED/hangs"; echo "at the third of nine"; exec sleep 60 ;;
    stubborn) echo $$ >>"$PRETENDED/hangs"; trap '' TERM; setsid sleep 60 & sleep 60 & wait ;;
    inherits) if [ -e "$PRETENDED/harmed" ]; then rm "$PRETENDED/harmed"; test_result "$1" 1; fi ;;
    leaves) setsid sleep 60 >/dev/null & echo $! >>"$PRETENDED/left" ;;
    wrong) test_result "$1" 1 ;;
  esac
}

bisect() {
  local switches=(plain position dropout) from=0
  case $words in
    *--from*) from=${words##* } ;;
  esac
  for switch in "${switches[@]:from}"; do
    echo "{\"bisecting\": \"$switch\", \"number\": $from}"
    from=$((from + 1))
    [ "$switch" != position ] || kill -ABRT $$
    [ "$switch" != plain ] || echo '{"bisect": "plain", "tensor": "out", "relative_l2": 0.001, "bound": 0.01, "passed": true}'
    [ "$switch" != dropout ] || echo '{"bisect": "dropout", "tensor": "out", "relative_l2": 0.5, "bound": 0.01, "passed": false, "worst": {"row_mod_8": 3, "warp": 2, "key_mod_64": 17, "tile": 4}, "pattern": "every eighth row"}'
  done
  echo "dropout is where it goes wrong"
  exit 1
}

device_test() {
  local name
  case $words in
    *--gtest_list_tests*)
      [ "$(fault_of list)" != empty ] || exit 0
      printf 'SmokeTest.\n  Queue\n  Copy\n  Flat\n  Gemm\n  RingForward\n  Graph\n'; exit 0 ;;
    *--bisect*) bisect ;;
    *RingAgreesWithGeneral) name=production ;;
    *=AttentionTest*) name=attention ;;
    *SmokeTest.*) name=${words##*SmokeTest.} ;;
    *) name=another ;;
  esac
  [ "$name" != Copy ] || [ -z "${CUDA_COREDUMP_FILE:-}" ] || touch "${CUDA_COREDUMP_FILE/\%p/1}"
  commit_fault "$name" "$(fault_of $name)"
  test_result "$name" 0
}

bench() {
  [[ $words != *rows* || $words == *attention,rows* || -z $(fault_of bench_rows) ]] || head -c 25000000 /dev/urandom | base64
  echo '{"name": "step_large", "value": 130000, "unit": "tokens/s"}'
}

sanitizer() {
  case $words in *--help*) echo "  --kernel-name arg"; exit 0 ;; esac
  echo "$words"
  while [ "${1#--}" != "$1" ]; do case $1 in *=*) shift ;; *) shift 2 ;; esac; done
  if [ -n "$(fault_of "${words##*SmokeTest.}")" ]; then
    printf '========= COMPUTE-SANITIZER\n[ RUN      ] SmokeTest\n========= Invalid __global__ read of size 16 bytes\n=========     at AttentionRingForwardKernel+0x40\n'
    printf '=========     by thread (3,0,0) in block (0,0,0)\n=========     Address 0x1a4c0 is out of bounds\n========= ERROR SUMMARY: 1 error\n'
    exit 1
  fi
  "$@"
  echo "========= ERROR SUMMARY: 0 errors"
}

# ncu's table: a line of names, one of units, and the launches.
ncu() {
  local table=${words#*--log-file } kernel
  case $words in *--query-metrics*) printf 'smsp__inst_executed  x\ngpu__time_duration  x\nsm__inst_executed_pipe_tensor_op_hmma  x\nsmsp__inst_executed_op_ldsm  x\n'; exit 0 ;; esac
  echo '{"name": "step_large", "value": 13, "unit": "tokens/s"}'  # no speed of training
  exec >"${table%% *}"
  case $(fault_of ncu) in
    forbidden) echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1 ;;
    broken) echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"; exit 1 ;;
    unsampled) case $words in *group:*) echo "==ERROR== Failed to find metric group:smsp__pcsamp_warp_stall_reasons" >&2; exit 1 ;; esac ;;
  esac
  echo "==PROF== Connected to process 7"
  if [[ $words == *profile-from-start* ]]; then
    printf '"ID","Kernel Name","Grid Size","gpu__time_duration.sum"\n"","","","ns"\n'
    for kernel in $(seq 24); do
      [ "$kernel" -le 2 ] || [ "$(fault_of ncu)" != torn ] || { printf '"3","void anyor'; exit 9; }
      printf '"%s","void anyorder::kernels::cuda::AttentionRingForwardKernel<true, (int)0>(T1)","(1, 1, 1)","960,000"\n' "$kernel"
    done
  else
    printf '"ID","Kernel Name","Grid Size","gpu__time_duration.sum","smsp__inst_executed.sum","sm__inst_executed_pipe_tensor_op_hmma.sum","smsp__inst_executed_op_ldsm.sum"\n'
    printf '"","","","ns","inst","inst","inst"\n"0","void anyorder::kernels::cuda::AttentionRingForwardKernel<true>(T1)","(2, 2, 1)","360,000","23,000","1,920","560"\n'
  fi
}

smi() {
  case $words in *compute-apps*) exit 0 ;; esac
  echo '345, 3201, 30, 76.5, 0, 0x0000000000000001'
  echo '1980, 3201, 50, 500.1, 99, 0x0000000000000004'
  sleep 100
}

# The real programs' ways, as far as training.sh knows them.
anyorder() {
  local run device
  case $1 in
    prep) mkdir -p shards && touch shards/spiece.model ;;
    launch)
      case $words:$(fault_of nccl) in
        *transport=nccl*:none) echo "no NCCL: libnccl.so.2 is not here"; echo "the run has ended"; exit 74 ;;
        *transport=nccl*:bad) echo "NCCL's ncclCommInitRankConfig: bad"; exit 74 ;;
      esac
      run=${words#*--run-dir } run=${run%% *}
      mkdir -p "$run/checkpoints/step-000000020" "$PRETENDED" && echo "$run" >>"$PRETENDED/runs"
      case $words in *dtype=bf16*) device=0.01 ;; *) device=0 ;; esac
      awk -v noise=$device 'BEGIN { for (step = 1; step <= 3; ++step) printf "{\"step\": %d, \"loss\": %g}\n", step, 5 - step + noise }' >"$run/metrics.jsonl" ;;
    inspect) echo '{"state_digest": "abc"}' ;;
  esac
}

case $tool in
  gpu.device_test) device_test ;;
  gpu_bench) bench ;;
  compute-sanitizer) sanitizer "$@" ;;
  cuda-gdb) printf '[New Thread 1]\nCUDA Exception: Warp Illegal Address\nThe exception was triggered at PC 0x7f5a\n[Current focus set to CUDA kernel 0, grid 1, block (0,0,0), thread (3,0,0)]\n#0  AttentionRingForwardKernel<<<(2,2,1)>>>\n' ;;
  ncu) ncu ;;
  nvidia-smi) smi ;;
  anyorder) anyorder "$@" ;;
esac
