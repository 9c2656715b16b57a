#!/usr/bin/env bash
# Everything that only a GPU can show, in one call of under ten minutes, on a machine with a driver and a CUDA toolkit: environment,
# correctness, compute-sanitizer, speed. Nothing is installed and no setting of the machine is changed.
#
# Usage: check.sh [--bundle DIR | --build DIR] [--out DIR] [--only correctness|sanitizer|speed] [--quick]
#   --bundle DIR  an unpacked bundle (default: the one that this script lies in)
#   --build DIR   a build folder of this source (default: build)
#   --out DIR     report.md, report.jsonl and logs/ (default: gpu-report; an old report there is replaced)
#   --only PART   one part beside the environment, which then has all the time that there is, and each check three times its own
#   --quick       a fifth of each part's time; what does not fit is cut off and says so
#
# A part has a budget of seconds and a check at most what is left of it; what does not end in time is ended and reported as cut off,
# and what there is no time for as well. All of it together, the environment too, ends after 540 s, so that the report is there before
# callers lose patience at 600. Needs bash, coreutils and Python 3.
# Exit status: 0 all passed; 1 a check failed; 2 none failed, but some were cut off; 77 no GPU, or a driver that is too old for this
# build: what needs none passed, the rest was not run; 64 bad command line; 74 no Python 3, a glibc that is too old for the bundle, or
# nothing can be written to the folder of the report.
set -u
total=540 environment=40
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mode="" folder="" out=gpu-report only="" share=1

fail() { echo "check.sh: $2" >&2; exit "$1"; }
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --build | --out | --only)
      [ $# -ge 2 ] || fail 64 "$1 needs a value"
      case $1 in
        --out) out=$2 ;;
        --only) only=$2 ;;
        *) [ -z "$mode" ] || fail 64 "--bundle and --build exclude each other"
          mode=${1#--} folder=$2 ;;
      esac
      shift 2 ;;
    --quick) share=5; shift ;;
    -h | --help) sed -n '2,19s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail 64 "unknown option '$1'; see check.sh --help" ;;
  esac
done
case $only in "" | correctness | sanitizer | speed) ;; *) fail 64 "--only $only: must be correctness, sanitizer or speed" ;; esac
if [ -z "$mode" ]; then
  if [ -e "$root/MANIFEST.json" ]; then mode=bundle folder=$root; else mode=build folder=$root/build; fi
fi
bin=$(cd "$folder/bin" 2>/dev/null && pwd) || fail 64 "$folder has no bin/; unpack the bundle or build first (cmake --build build)"
[ -x "$bin/anyorder" ] || fail 64 "$bin has no anyorder; build it first (cmake --build build)"
command -v python3 >/dev/null || fail 74 "no python3 in PATH; the report is written by it"
mkdir -p "$out/logs" && : >"$out/plan.tsv" || fail 74 "cannot write to '$out'"
out=$(cd "$out" && pwd)
rm -rf "$out"/logs/* "$out"/work "$out"/report.* "$out"/results.tsv && : >"$out/results.tsv"
started=$SECONDS

# However this ends, there is a report of what was seen.
report() {
  python3 "$here/report.py" "$out" --seconds $((SECONDS - started))
  status=$?
  rm -rf "$out/work"
  exit $status
}
trap 'trap - INT TERM; kill $(jobs -p) 2>/dev/null; report' INT TERM

# The programs find CUDA's libraries where the toolkit is; pip's copies (NCCL, above all) serve where it has none.
# Other people's programs get the environment as it was given: theirs may bring libraries of other versions.
given=(env -u LD_LIBRARY_PATH ${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"})
packages=$(python3 "$here/environment.py" --package-folders)
[ -z "$packages" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${CUDA_HOME:+$CUDA_HOME/lib64:}/usr/local/cuda/lib64:$packages"
timeout -k 5 $environment python3 "$here/environment.py" "$folder" >"$out/environment.tsv" || {
  grep -q '^gpus' "$out/environment.tsv" ||
    printf 'gpus\t0\nno_gpu\tthe driver did not say how many GPUs there are within %s s\n' $environment >>"$out/environment.tsv"
  printf 'environment\tended early, after at most %s s\n' $environment >>"$out/environment.tsv"
}
gpus=$(sed -n 's/^gpus\t//p' "$out/environment.tsv")
no_gpu=$(sed -n 's/^no_gpu\t//p' "$out/environment.tsv")
old_driver=$(sed -n 's/^old_driver\t//p' "$out/environment.tsv")
cat "$out/environment.tsv"
glibc=$(sed -n 's/^glibc\t//p' "$out/environment.tsv")
glibc_at_least=$(sed -n 's/^glibc_at_least\t//p' "$out/environment.tsv")
[ -z "$glibc" ] || [ "$(printf '%s\n' "$glibc_at_least" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
  fail 74 "the bundle needs glibc $glibc_at_least or newer, and this is $glibc; make one on a system that is no newer than this (cmake --build build --target bundle)"
[ "${gpus:-0}" -gt 0 ] || echo "no GPU: what needs one is not run ($no_gpu)"
[ -z "$old_driver" ] || echo "$old_driver: what needs a GPU is not run"

# part NAME SECONDS [rest]: the checks that follow belong to it, and together have so long; the last part also what the others left.
part() {
  local seconds=$2 rest=$((total - (SECONDS - started)))
  part=$1
  [ "$only" != "$part" ] || seconds=$rest
  [ "${3:-}" != rest ] || [ $seconds -ge $rest ] || [ $share -gt 1 ] || seconds=$rest
  seconds=$((seconds / share))
  deadline=$((SECONDS + seconds))
  [ $deadline -lt $((started + total)) ] || deadline=$((started + total))
  wanted=yes
  [ -z "$only" ] || [ "$only" = "$part" ] || wanted=""
  [ -z "$wanted" ] || printf '\n== %s (at most %s s)\n' "$part" $seconds
}

record() { printf '%s\t%s\t%s\t%s\t%s\n' "$part" "$1" "$2" "$3" "$4" >>"$out/results.tsv"; }

# check NEED NAME SECONDS COMMAND...: NEED is `gpu` or `any`. Exit status 77 of COMMAND: skipped, its last line says why.
check() {
  local need=$1 name=$2 limit=$3 begun=$SECONDS status left
  shift 3
  [ -n "$wanted" ] || return 0
  printf '%s\t%s\n' "$part" "$name" >>"$out/plan.tsv"
  left=$((deadline - SECONDS))
  [ -z "$only" ] || limit=$((3 * limit))
  [ $limit -lt $left ] || limit=$left
  if [ "$need" = gpu ] && [ "${gpus:-0}" -eq 0 ]; then
    record "$name" no-gpu 0 "$no_gpu"
  elif [ "$need" = gpu ] && [ -n "$old_driver" ]; then
    record "$name" old-driver 0 "$old_driver"
  elif [ $left -le 0 ]; then
    record "$name" no-time 0 "the part's time was used up before"
  elif [[ $1 == "$bin"/* && ! -x $1 ]]; then
    record "$name" no-program 0 "${1##*/} is not in this build"
  else
    timeout -k 5 $limit "$@" >"$out/logs/$name.log" 2>&1 </dev/null &
    wait $!
    status=$?
    record "$name" $status $((SECONDS - begun)) "$limit"
  fi
  python3 "$here/report.py" "$out" --line "$name"
}

# Runs one of the whole-program cases of training.sh.
training() { check "$1" "$2" "$3" bash "$here/training.sh" "$bin" "$out/work" "$2"; }

part correctness 230
training any starts_without_driver 20
training any no_device 30
check gpu queues 30 "$bin/gpu.device_test" --gtest_filter='SmallQueueTest.*'
check gpu backend_suite 60 "$bin/gpu.device_test" --gtest_filter='Device/*'
check gpu attention 60 "$bin/gpu.device_test" --gtest_filter='*AttentionTest*'
check gpu model_gradients 60 "$bin/gpu.device_test" --gtest_filter='*ModelTest*'
training gpu repeat 60
training gpu ranks 40
training gpu nccl 40
training gpu resume 60
training gpu loss_curve 120

# Small shapes: the tools are slow, and what they look for does not depend on size. Time is short, and what is cut off should be what is
# missed least: each tool looks at everything before the next, and the suite of single operations comes last. Errors of the API are left
# out: libraries ask for what may not be there, and the product checks its own calls.
part sanitizer 120
sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v compute-sanitizer)
for tool in memcheck racecheck initcheck synccheck; do
  options=(--tool $tool --error-exitcode 1 --print-limit 5)
  [ $tool != memcheck ] || options+=(--report-api-errors no)
  for suite in SmallAttentionTest SmallModelTest Device/BackendTest; do
    if [ ! -x "$sanitizer" ]; then
      check gpu ${tool}_${suite##*/} 5 bash -c 'echo "there is no compute-sanitizer here"; exit 77'
    elif [ ! -x "$bin/gpu.device_test" ]; then
      check gpu ${tool}_${suite##*/} 5 "$bin/gpu.device_test"
    else
      check gpu ${tool}_${suite##*/} 40 "$sanitizer" "${options[@]}" "$bin/gpu.device_test" --gtest_filter="$suite.*"
    fi
  done
done

part speed 150 rest
check gpu gpu_bench 120 "$bin/gpu_bench"
# The eager form takes a minute, torch.compile's compilers several.
check gpu peers 300 "${given[@]}" python3 "$root/tests/bench/peers/xlnet_gpu.py"

report
