#!/usr/bin/env bash
# check.sh from end to end on a pretended device: on a machine without a GPU this is what tells that
# all of it works. The pretended programs (pretended_device.sh) crash, hang, compute wrong bits and
# leave processes behind as FAULTS asks.
#
# Usage: check_script_test.sh WORK_DIR SOURCE_DIR
set -eu
work=$1 source=$2
rm -rf "$work" && mkdir -p "$work/tree/tests" "$work/tree/bin" "$work/tree/tests/bench/peers" "$work/tools" "$work/tmp"
cp -r "$source/tests/gpu" "$work/tree/tests/gpu"
here=$work/tree/tests/gpu bin=$work/tree/bin tools=$work/tools out=$work/out
export TMPDIR=$work/tmp PRETENDED=$work/pretended FAULTS=""
fail() { echo "FAILED: $*" >&2; [ ! -e "$work/log" ] || tail -n 40 "$work/log" >&2; exit 1; }

# expect STATUS COMMAND...: what it says is in the log.
expect() {
  local expected=$1 status=0
  shift
  "$@" >"$work/log" 2>&1 || status=$?
  [ $status -eq "$expected" ] || fail "$* ended with $status, expected $expected"
}
# check STATUS ARGUMENT...: of check.sh.
check() {
  rm -rf "$PRETENDED" && mkdir "$PRETENDED"
  expect "$1" "$here/check.sh" "${@:2}" --bundle "$work/tree" --out "$out"
}
reported() { grep -qF -- "$1" "$out/report.md" || fail "report.md does not say '$1': $(cat "$out/report.md")"; }
said() { grep -qF -- "$1" "$work/log" || fail "the terminal does not say '$1'"; }
# Two files of less than 16 MiB come out, and nothing stays behind.
expect_little_left() {
  [ "$(ls "$out")" = $'report.md\nreport.tgz' ] || fail "the folder of the report has $(ls "$out")"
  [ -z "$(find "$out" -size +16M)" ] || fail "too large: $(ls -l "$out")"
  [ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
}
# Whether one of the processes in file $1, a line each, lives. A zombie, which nobody has waited
# for, is not alive.
alive() {
  local pid
  [ -s "$1" ] || fail "$1 names no process"
  while read -r pid; do
    if { tr -d "\\0" <"/proc/$pid/cmdline"; } 2>/dev/null | grep -q .; then return 0; fi
  done <"$1"
  return 1
}
logged() { tar -xzOf "$out/report.tgz" "logs/$1" 2>/dev/null || fail "report.tgz has no logs/$1: $(tar -tzf "$out/report.tgz")"; }

for program in anyorder gpu.device_test gpu_bench; do cp "$here/pretended_device.sh" "$bin/$program"; done
for program in compute-sanitizer cuda-gdb ncu nvidia-smi; do cp "$here/pretended_device.sh" "$tools/$program"; done
chmod +x "$bin"/* "$tools"/*
touch "$bin/anyorder-prep" "$bin/anyorder-train"
# Python itself, not a launcher of it that chooses among versions each time.
PATH=$tools:$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH
echo '{"version": "1", "commit": "abc", "built_on": "here", "cuda": true, "toolkit": "13.0", "glibc_at_least": "2.36"}' >"$work/tree/MANIFEST.json"
cat >"$work/tree/tests/bench/peers/xlnet_gpu.py" <<'PROGRAM'
import sys
print(" ".join(sys.argv))
print('{"name": "peer_large_%s", "shape": "B32 T512", "value": 20000, "unit": "tokens/s"}' % sys.argv[2])
PROGRAM
echo 'print("{}")' >"$work/tree/tests/bench/peers/networks_gpu.py"
cp "$here/environment.py" "$work/environment.py"
pretend() { printf 'import sys\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": print("""%s""")\n' "$1" >"$here/environment.py"; }
printf 'echo the program ran\n' >"$here/training.sh"
# So long may a pretended program take to start on a busy machine; what hangs takes as long.
sed -i 's/^smoke_case_seconds=10/smoke_case_seconds=5/' "$here/parts.sh"

# A machine without a GPU, whatever this one has.
pretend $'date\t2026-01-02\ngpus\t0\nno_gpu\tno driver'
check 77 depth
reported '| depth | starts_without_driver | passed |'
reported 'no GPU: not run (no driver)'
reported 'Nothing was measured.'
said 'no GPU: what needs one is not run (no driver)'
expect_little_left

# The bundle's programs would not start.
pretend $'gpus\t1\nglibc\t2.31\nglibc_at_least\t2.36'
check 74 smoke
said 'needs glibc 2.36 or newer, and this is 2.31'

# With one, all well: every part in one go.
pretend $'date\t2026-01-02\ngpus\t1\nchip\tPretended\nglibc\t2.36\nglibc_at_least\t2.36'
check 0
reported '# GPU check: Pretended, 2026-01-02'
order=$(sed -n 's/^| smoke | smoke_\(\w*\) | passed .*/\1/p' "$out/report.md" | xargs)
[ "$order" = "Queue Copy Flat Gemm RingForward Graph" ] || fail "the order of the smoke cases is $order"
grep -q '| depth | attention | passed .* 8 of 8 tests passed |' "$out/report.md" || fail "the suite was not cut in eight"
reported 'ours 6.5 times as fast'
! grep -q '^| step_large |  | 13 ' "$out/report.md" || fail "a time under a profiler is reported as speed"
reported "| AttentionRingForwardKernel | instructions to 192 HMMA, a warp's step of 64 keys | 2,236 | 2,300 | confirmed |"
reported '| attention forward | 0.36 | 0.36 | 24 | confirmed |'
said 'Clocks before: SM 345 MHz'
said 'under load'
logged peer_compile.log | grep -q -- '--forms compile --batches 32 16$' || fail "torch.compile does not begin with the batch that fitted"
# What the sanitizer is limited to: our kernels, but for the tool that must see who writes.
logged memcheck_SmallAttentionTest.log | grep -q -- '--kernel-name kernel_substring=anyorder.*--report-api-errors no' || fail "memcheck's options"
! logged initcheck_SmallAttentionTest.log | grep -q -- '--kernel-name' || fail "initcheck is limited to our kernels"
expect_little_left

# Crashes, wrong bits, a hang, a device that needs one process to recover, and one that leaves a
# process behind.
FAULTS="Queue=leaves Copy=segv Flat=inherits Gemm=wrong RingForward=abort Graph=hang" check 1 smoke
order=$(sed -n 's/^| smoke | smoke_\(\w*\) |.*/\1/p' "$out/report.md" | xargs)
[ "$order" = "Queue Copy Flat Gemm RingForward Graph" ] || fail "after crashes the order is $order"
reported '| smoke | smoke_Queue | passed |'
said 'Leftover process of smoke_Queue, killed:'
reported 'exit status 139 (signal 11)'
reported '| failed right after smoke_Copy crashed, passed when run again;'
reported '| smoke | smoke_Flat | failed |'
said 'FAILED smoke_Gemm: exit status 1: 0 of 1 tests passed, failed: SmokeTest.Gemm; The difference between 1 and 2 exceeds 0.01 -- memcheck: Invalid __global__ read'
said "FAILED smoke_RingForward: exit status 134 (signal 6): CUDA error 700 (an illegal memory access) in kernel AttentionRingForwardKernel"
reported '| smoke | smoke_Graph | cut off |'
reported 'after 5 s: at the third of nine'
said 'DID NOT END smoke_Graph: cut off right after smoke_RingForward crashed'
# The first two failures that stay get all steps; the bisection goes on behind the switch that
# crashes.
reported '| smoke_Copy | blocking |'
reported '| smoke_Copy | cuda_gdb |'
reported '| CUDA Exception: Warp Illegal Address; The exception was triggered at PC 0x7f5a; [Current focus set to CUDA kernel 0, grid 1, block (0,0,0), thread (3,0,0)]; #0 '
reported '| smoke_Gemm | memcheck |'
reported '| Invalid __global__ read of size 16 bytes; at AttentionRingForwardKernel+0x40; by thread (3,0,0) in block (0,0,0) |'
reported '- position: crashed with status 134'
bisected='dropout: out has relative L2 0.5, bound 0.01, worst element at row mod 8 3, warp 2, key mod 64 17, tile 4, every eighth row'
reported "| position: crashed with status 134; $bisected |"
said "attention by parts: position: crashed with status 134; $bisected"
! grep -q '| smoke_Flat | blocking\|| smoke_Graph | memcheck' "$out/report.md" || fail "too much diagnosis: $(cat "$out/report.md")"
reported '| smoke | memcheck_SmallModelTest | passed |'
! alive "$PRETENDED/left" || fail "a process was left running"
expect_little_left

# expect_all_cut_before SECONDS: no check had as long as its own limit. Their own times count: the
# rest of a call takes what the machine takes.
expect_all_cut_before() {
  awk -F'|' -v limit="$1" '/\| cut off \|/ { ++rows; late += $5 + 0 >= limit } END { exit late || !rows }' "$out/report.md" ||
    fail "a check had $1 s: $(cat "$out/report.md")"
}

# Hangs that may take 50 s do not eat more than the time of the call, and what is cut off says so.
FAULTS="Queue=hang Copy=hang Flat=hang Gemm=hang RingForward=hang Graph=hang" check 2 smoke --seconds 9
said 'cut off: smoke_Queue, smoke_Copy, smoke_Flat, smoke_Gemm'
expect_all_cut_before 50
reported "| smoke | smoke_Graph | cut off | 0 | the part's time was used up before |"

# A check of two minutes has no more than what is left.
FAULTS="production=hang" check 2 rerun production_attention --seconds 7
reported '| depth | production_attention | cut off |'
expect_all_cut_before 120

# What SIGTERM does not end is killed, and what it has started, whatever session that made for
# itself.
FAULTS="Graph=stubborn" check 2 rerun smoke_Graph
said 'Leftover process of smoke_Graph, killed:'
! alive "$PRETENDED/hangs" || fail "a stubborn process was left running"
! logged smoke_Graph.log | grep -q SIGKILL || fail "SIGKILL is said not to have ended what it ended"

# Profilers that may not or cannot profile are said, and the rest goes on; a log that has run wild
# is shortened.
FAULTS="ncu=forbidden bench_rows=wild" check 0 speed
reported '| speed | ncu_counters | skipped |'
reported '| ncu may not read this machine'
reported '| speed | bench_rows | passed |'
expect_little_left
FAULTS="ncu=broken" check 0 speed
reported 'ncu: Failed to initialize the profiler: LibraryNotLoaded'
FAULTS="ncu=unsampled" check 0 rerun ncu_counters
reported '| AttentionRingForwardKernel |'
# Half of a step's kernels is no step, but what there is is shown.
FAULTS="ncu=torn" check 1 rerun ncu_timeline
reported 'FAILED: ended with status 9 after'
reported '| attention forward | 0.36 |'

# Checks by their names, with what the diagnosis gives.
FAULTS="production=abort" check 1 rerun production_attention bench_ceilings
reported '| production_attention | cuda_gdb |'
[ "$(grep -c '^| \(smoke\|speed\|depth\|networks\|peers\) |' "$out/report.md")" = 2 ] || fail "rerun ran other checks: $(cat "$out/report.md")"
check 64 rerun no_such_check
said "there is no check 'no_such_check'; there are: smoke_Queue"

# Two calls as one report: the later result of a check counts, and a peer is compared with the other
# call's step.
FAULTS="production=abort" check 1 rerun production_attention peer_eager
mkdir "$work/first" && cp "$out/report.tgz" "$work/first"
check 0 rerun production_attention bench_ceilings
expect 0 python3 "$here/report.py" --merge "$work/merged" "$work/first/report.tgz" "$out"
said '2 calls, 3 passed'
grep -q '^| depth | production_attention | passed .*; failed in the call before: exit status 134' "$work/merged.md" || fail "merged: $(cat "$work/merged.md")"
grep -q 'ours 6.5 times as fast' "$work/merged.md" || fail "the peer stands alone: $(cat "$work/merged.md")"
[ "$(grep -c '^## Environment' "$work/merged.md")" = 1 ] || fail "one machine is shown twice"
head -n 1 "$work/merged.jsonl" | grep -q '"kind": "environment"' || fail "merged.jsonl begins with $(head -n 1 "$work/merged.jsonl")"
expect 64 python3 "$here/report.py" --merge "$work/merged" "$work/nowhere"

# A fault of the report's own costs nothing that was seen.
mv "$here/report.py" "$work/report.py"
echo 'raise ValueError' >"$here/report.py"
check 74 rerun bench_ceilings
tar -xzOf "$out/report.tgz" ./logs/bench_ceilings.log | grep -q step_large || fail "the logs are lost"
mv "$work/report.py" "$here/report.py"

# A driver that is older than the toolkit of the build: no failure, and what needs no GPU is still
# run.
pretend $'gpus\t1\nchip\tPretended\nold_driver\tdriver of CUDA 12.4 too old for CUDA 13.0'
check 77 depth
reported '| depth | starts_without_driver | passed |'
reported '| depth | backend_suite | not run | 0 | not run: driver of CUDA 12.4 too old for CUDA 13.0 |'

# An environment that takes too long is ended; what it has said by then counts.
sed -i 's/environment_seconds=25/environment_seconds=5/' "$here/runner.sh"
printf 'import sys, time\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": print("gpus\\t1", flush=True); time.sleep(30)\n' >"$here/environment.py"
check 0 rerun bench_ceilings
reported '| environment | ended early, after at most 5 s |'
printf 'import sys, time\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": time.sleep(30)\n' >"$here/environment.py"
check 77 rerun bench_ceilings
reported 'no GPU: not run (the driver did not say'
pretend $'date\t2026-01-02\ngpus\t1\nchip\tPretended'

# Ended from outside: what was seen is reported, what was under way is not called passed.
export FAULTS="attention=hang"
rm -rf "$PRETENDED" && mkdir "$PRETENDED"
"$here/check.sh" depth --bundle "$work/tree" --out "$out" >"$work/log" 2>&1 &
script=$!
for _ in $(seq 1200); do
  [ ! -s "$PRETENDED/hangs" ] || break
  sleep 0.05
done
kill -TERM $script
status=0
wait $script || status=$?
[ $status -eq 2 ] || fail "a script that was ended says $status"
reported '| depth | attention | cut off | 0 | the script was ended before this check was |'
reported '| depth | backend_suite | passed |'
! alive "$PRETENDED/hangs" || fail "the check under way was left running"
export FAULTS=""

# A test program that is missing from a build with CUDA is a failure, from one without it is none;
# so is one without the cases.
FAULTS="list=empty" check 1 smoke
said 'FAILED smoke_cases: exit status 1: gpu.device_test has no SmokeTest'
mv "$bin/gpu.device_test" "$work/gpu.device_test"
check 1 rerun backend_suite
reported 'gpu.device_test is not in this build |'
pretend $'gpus\t1\ncuda_backend\tno'
check 0 rerun backend_suite
reported 'gpu.device_test is not in this build, which has no CUDA backend |'

# The CPU's losses are made beforehand, and only those of this very build are taken.
cp "$source/tests/gpu/training.sh" "$here/training.sh"
expect 0 "$here/check.sh" prepare --bundle "$work/tree"
said 'cpu_curves.json: 3 steps of commit abc'
check 0 rerun loss_curve
reported '3 steps from 4.000 to 2.000 nats'
! grep -q cpu "$PRETENDED/runs" || fail "the CPU trained again: $(cat "$PRETENDED/runs")"
echo 'another build' >"$bin/anyorder-train"
check 1 rerun loss_curve
said 'cpu_curves.json is stale (programs '
rm "$work/tree/cpu_curves.json"
check 0 rerun loss_curve
grep -q cpu "$PRETENDED/runs" || fail "there are no losses of the CPU"

# Runs with and without NCCL, by a program that has a library, none, or one that fails.
for case in 'good 0 without and with end in abc' 'none 77 skipped: no NCCL: libnccl.so.2 is not here' "bad 1 FAILED: with ended with status 74: NCCL's ncclCommInitRankConfig: bad"; do
  read -r library expected words <<<"$case"
  FAULTS="nccl=$library" expect "$expected" bash "$source/tests/gpu/training.sh" "$bin" "$work/nccl" nccl
  [ "$(tail -n 1 "$work/log")" = "$words" ] || fail "nccl, $library: expected '$words'"
  rm -r "$work/nccl"
done

# The command line.
for words in everything 'smoke depth' rerun --colour 'smoke --build' 'smoke --seconds soon'; do
  # shellcheck disable=SC2086
  check 64 $words
done
expect 64 "$here/check.sh" --bundle "$work"
said 'has no bin/'
touch "$work/file"
expect 74 "$here/check.sh" --bundle "$work/tree" --out "$work/file/x"
rm -rf "$work"
echo "check.sh reports what happens"
