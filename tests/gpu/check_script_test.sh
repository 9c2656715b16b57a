#!/usr/bin/env bash
# check.sh from end to end, with programs that pretend: on a machine without a GPU this is what tells that all of it works.
#
# Usage: check_script_test.sh WORK_DIR SOURCE_DIR
set -eu
work=$1 source=$2
rm -rf "$work" && mkdir -p "$work/tree/tests" "$work/tree/bin" "$work/tree/tests/bench/peers"
cp -r "$source/tests/gpu" "$work/tree/tests/gpu"
here=$work/tree/tests/gpu bin=$work/tree/bin out=$work/out
fail() { echo "FAILED: $*" >&2; [ ! -e "$work/log" ] || tail -n 25 "$work/log" >&2; exit 1; }

# program NAME: its text comes from stdin.
program() { { echo '#!/usr/bin/env bash'; cat; } >"$bin/$1" && chmod +x "$bin/$1"; }
passing() { program "$1" <<<'printf "[==========] 2 tests from 1 test suite ran. (3 ms total)\n[  PASSED  ] 2 tests.\n"'; }
check() {
  local expected=$1 status=0
  shift
  "$here/check.sh" --bundle "$work/tree" --out "$out" "$@" >"$work/log" 2>&1 || status=$?
  [ $status -eq "$expected" ] || fail "check.sh $* ended with $status, expected $expected"
}
reported() { grep -qF -- "$1" "$out/report.md" || fail "report.md does not say '$1': $(cat "$out/report.md")"; }
recorded() { grep -q -- "$1" "$out/report.jsonl" || fail "report.jsonl has no $1: $(cat "$out/report.jsonl")"; }

echo '{"version": "1", "commit": "abc", "built_on": "here", "cuda": true, "toolkit": "13.0", "glibc_at_least": "2.36"}' >"$work/tree/MANIFEST.json"
passing anyorder

# A machine without a GPU, whatever this one has.
cp "$here/environment.py" "$work/environment.py"
pretend() { printf 'import sys\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": print("""%s""")\n' "$1" >"$here/environment.py"; }
printf 'echo every program starts\n' >"$here/training.sh"
pretend $'date\t2026-01-02\ngpus\t0\nno_gpu\tno driver'
check 77
reported '| correctness | starts_without_driver | passed |'
reported 'no GPU: not run (no driver)'
reported 'Nothing was measured.'
recorded '"exit_status": 77'
grep -q 'no GPU: what needs one is not run (no driver)' "$work/log" || fail "the terminal does not say that there is no GPU"

# The bundle's programs would not start.
pretend $'gpus\t1\nglibc\t2.31\nglibc_at_least\t2.36'
check 74
grep -q 'needs glibc 2.36 or newer, and this is 2.31' "$work/log" || fail "the terminal does not say which glibc is needed"

# With one, all well.
pretend $'date\t2026-01-02\ngpus\t1\nchip\tPretended\nglibc\t2.36\nglibc_at_least\t2.36'
passing gpu.device_test
program gpu_bench <<<'echo "{\"name\": \"step_large\", \"value\": 130000, \"unit\": \"tokens/s\"}"'
echo 'print("{\"name\": \"peer_large_eager\", \"value\": 20000, \"unit\": \"tokens/s\"}")' >"$work/tree/tests/bench/peers/xlnet_gpu.py"
program compute-sanitizer <<<'echo "$*"; while [ "${1#--}" != "$1" ]; do shift 2; done; "$@"; echo "========= ERROR SUMMARY: 0 errors"'
PATH=$bin:$PATH check 0
reported '# GPU check: Pretended, 2026-01-02'
reported '2 of 2 tests passed; ERROR SUMMARY: 0 errors'
reported 'ours 6.5 times as fast'
[ ! -e "$out/work" ] || fail "the runs' folder was left behind"
# One tool looks at everything before the next, and only memcheck would report errors of the API.
order=$(sed -n 's/^sanitizer\t\([^\t_]*\)_.*/\1/p' "$out/results.tsv" | uniq | xargs)
[ "$order" = "memcheck racecheck initcheck synccheck" ] || fail "the tools' order is $order"
[ "$(grep -l -- '--report-api-errors no' "$out"/logs/*.log | xargs -n 1 basename | cut -d _ -f 1 | sort -u)" = memcheck ] || fail "who reports errors of the API"

# What the others left of the time is the last part's; in a hurry it is not.
[ "$(sed -n 's/^speed\tpeers\t0\t[0-9]*\t//p' "$out/results.tsv")" = 300 ] || fail "peers had less than all of its time: $(cat "$out/results.tsv")"
PATH=$bin:$PATH check 0 --only speed --quick
[ "$(sed -n 's/^speed\tpeers\t0\t[0-9]*\t//p' "$out/results.tsv")" -le 108 ] || fail "peers had more than its time in a hurry"

# One part only: no word of the others.
check 0 --only correctness
! grep -q 'gpu_bench\|memcheck' "$out/report.md" || fail "--only correctness reports other parts"

# A driver that is older than the toolkit of the build: no failure, and what needs no GPU is still run.
pretend $'gpus\t1\nchip\tPretended\nold_driver\tdriver of CUDA 12.4 too old for CUDA 13.0'
check 77
reported '| correctness | starts_without_driver | passed |'
reported '| correctness | backend_suite | not run | 0 | not run: driver of CUDA 12.4 too old for CUDA 13.0 |'
reported '| speed | gpu_bench | not run |'

# An environment that takes too long is ended; what it has said by then counts.
sed -i 's/environment=40/environment=1/' "$here/check.sh"
printf 'import sys, time\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": print("gpus\\t1", flush=True); time.sleep(30)\n' >"$here/environment.py"
check 0 --only speed
reported '| environment | ended early, after at most 1 s |'
printf 'import sys, time\nif len(sys.argv) < 2 or sys.argv[1] != "--package-folders": time.sleep(30)\n' >"$here/environment.py"
check 77 --only speed
reported 'no GPU: not run (the driver did not say'
pretend $'date\t2026-01-02\ngpus\t1\nchip\tPretended'

# A failure, and a check that is ended; still there is a report of all.
sed -i 's/^check gpu attention [0-9]*/check gpu attention 1/' "$here/check.sh"
program gpu.device_test <<<'case $1 in *Device*) echo "something is wrong"; exit 1 ;; *Attention*) echo "at the third of nine"; sleep 60 ;; esac'
check 1 --only correctness
reported '| correctness | backend_suite | failed |'
reported 'exit status 1: something is wrong |'
reported 'after 3 s: at the third of nine |'
reported '| correctness | model_gradients | passed |'
# Without the failure the status is that of what was cut off.
program gpu.device_test <<<'case $1 in *Attention*) echo "at the third of nine"; sleep 60 ;; *) echo "all is well" ;; esac'
check 2 --only correctness
recorded '"exit_status": 2'
# No time is left for a check: for its part, or of all that there is.
sed -i 's/^part sanitizer .*/part sanitizer 0/' "$here/check.sh"
check 2
reported '| correctness | backend_suite | passed |'
reported '| sanitizer | memcheck_SmallAttentionTest | cut off | 0 | the part'
sed -i 's/^total=540/total=0/' "$here/check.sh"
check 2 --only correctness
reported '| correctness | backend_suite | cut off | 0 | the part'

# Ended from outside: what was seen is reported, what was under way is not called passed.
sed -i 's/^total=0/total=540/; s/^check gpu attention [0-9]*/check gpu attention 60/' "$here/check.sh"
rm -rf "$out"  # its logs would say that the check under way has begun
"$here/check.sh" --bundle "$work/tree" --out "$out" --only correctness >"$work/log" 2>&1 &
script=$!
for _ in $(seq 200); do
  ! grep -q 'third of nine' "$out/logs/attention.log" 2>/dev/null || break
  sleep 0.05
done
kill -TERM $script
status=0
wait $script || status=$?
[ $status -eq 2 ] || fail "a script that was ended says $status"
reported '| correctness | attention | cut off | 0 | the script was ended before this check was |'
reported '| correctness | backend_suite | passed |'

# A test program that is missing from a build with CUDA is a failure, from one without it is none.
rm "$bin/gpu.device_test"
check 1 --only correctness
reported 'gpu.device_test is not in this build |'
pretend $'gpus\t1\ncuda_backend\tno'
check 0 --only correctness
reported 'gpu.device_test is not in this build, which has no CUDA backend |'

# Runs with and without NCCL, by a program that has a library, none, or one that fails.
program anyorder <<'PROGRAM'
words="$*"
case $1 in
  prep) mkdir -p shards && touch shards/spiece.model ;;
  launch)
    case $words:$NCCL in
      *transport=nccl*:none) echo "no NCCL: libnccl.so.2 is not here"; echo "the run has ended"; exit 74 ;;
      *transport=nccl*:bad) echo "NCCL's ncclCommInitRankConfig: bad"; exit 74 ;;
    esac
    run=${words#*--run-dir }
    mkdir -p "${run%% *}/checkpoints/step-000000020" ;;
  inspect) echo '{"state_digest": "abc"}' ;;
esac
PROGRAM
for case in 'good 0 without and with end in abc' 'none 77 skipped: no NCCL: libnccl.so.2 is not here' "bad 1 FAILED: with ended with status 74: NCCL's ncclCommInitRankConfig: bad"; do
  read -r library expected words <<<"$case"
  status=0
  NCCL=$library bash "$source/tests/gpu/training.sh" "$bin" "$work/nccl" nccl >"$work/log" || status=$?
  [ $status -eq "$expected" ] && [ "$(tail -n 1 "$work/log")" = "$words" ] || fail "nccl, $library: status $status, expected $expected and '$words'"
  rm -r "$work/nccl"
done

# The command line.
check 64 --only everything
check 64 --colour
check 64 --build
status=0
"$here/check.sh" --bundle "$work" >"$work/log" 2>&1 || status=$?
[ $status -eq 64 ] && grep -q 'has no bin/' "$work/log" || fail "a folder that is no bundle: $status"
touch "$work/file"
status=0
"$here/check.sh" --bundle "$work/tree" --out "$work/file/x" >"$work/log" 2>&1 || status=$?
[ $status -eq 74 ] || fail "a folder that cannot be written to: $status"
rm -rf "$work"
echo "check.sh reports what happens"
