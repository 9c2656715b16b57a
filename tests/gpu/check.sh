#!/usr/bin/env bash
# Everything that only a GPU can show, in five calls of at most ten minutes each (README.md says in
# which order). Nothing is installed and no setting of the machine is changed.
#
# Usage: check.sh [smoke|speed|depth|networks|peers|all] [options]
#                            a part, or all of them one after another (default)
#        check.sh rerun NAME... [options]
#                            these checks again, as after a fix, with the diagnosis of failures
#        check.sh prepare [options]
#                            on any machine: trains on the CPU what `peers` compares with
#   --bundle DIR       an unpacked bundle (default: the one that this script lies in)
#   --build DIR        a build folder of this source (default: build)
#   --out DIR          report.md and report.tgz (report.jsonl and logs), replaced if there
#                      (default: gpu-report/PART)
#   --cpu-curves FILE  what `prepare` writes and `peers` reads
#                      (default: cpu_curves.json in the folder of the bundle or build)
#   --seconds N        ends the call after N seconds, instead of 240 (smoke), 420 (speed),
#                      480 (depth, networks), 540 (peers, rerun) or their sum (all)
#
# A check that does not end within its limit, or for which no time is left, is reported as cut off.
# Needs bash, coreutils, setsid and Python 3; compute-sanitizer, cuda-gdb, ncu and a torch with CUDA
# are used where they are.
# Exit status: 0 all passed; 1 a check failed; 2 none failed, but some were cut off; 77 no GPU, or a
# driver that is too old for this build: what needs none passed, the rest was not run; 64 bad
# command line; 74 no Python 3, a glibc that is too old for the bundle, or the report could not be
# written.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
started=$SECONDS
mode="" folder="" out="" curves="" seconds="" command="" names=()

# shellcheck source=tests/gpu/runner.sh
. "$here/runner.sh"
# shellcheck source=tests/gpu/diagnosis.sh
. "$here/diagnosis.sh"
# shellcheck source=tests/gpu/parts.sh
. "$here/parts.sh"

fail() { echo "check.sh: $2" >&2; exit "$1"; }

set_option() {
  case $1 in
    --out) out=$2 ;;
    --cpu-curves) curves=$2 ;;
    --seconds)
      [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || fail 64 "--seconds $2: must be a number of 1 or more"
      seconds=$2 ;;
    *)
      [ -z "$mode" ] || fail 64 "--bundle and --build exclude each other"
      mode=${1#--} folder=$2 ;;
  esac
}

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      --bundle | --build | --out | --cpu-curves | --seconds)
        [ $# -ge 2 ] || fail 64 "$1 needs a value"
        set_option "$1" "$2"
        shift ;;
      -h | --help) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
      -*) fail 64 "unknown option '$1'; see check.sh --help" ;;
      *) if [ -z "$command" ]; then command=$1; elif [ "$command" = rerun ]; then names+=("$1"); else fail 64 "one part a call: '$1' is too many"; fi ;;
    esac
    shift
  done
  command=${command:-all}
  case $command in
    smoke | speed | depth | networks | peers | all | prepare) ;;
    rerun) [ ${#names[@]} -gt 0 ] || fail 64 "rerun needs the name of a check" ;;
    *) fail 64 "unknown part '$command': must be smoke, speed, depth, networks, peers, all, rerun or prepare" ;;
  esac
}

find_programs() {
  if [ -z "$mode" ]; then
    if [ -e "$root/MANIFEST.json" ]; then mode=bundle folder=$root; else mode=build folder=$root/build; fi
  fi
  bin=$(cd "$folder/bin" 2>/dev/null && pwd) || fail 64 "$folder has no bin/; unpack the bundle or build first (cmake --build build)"
  [ -x "$bin/anyorder" ] || fail 64 "$bin has no anyorder; build it first (cmake --build build)"
  folder=$(cd "$folder" && pwd)
  curves=${curves:-$folder/cpu_curves.json}
  command -v python3 >/dev/null || fail 74 "no python3 in PATH; the report is written by it"
}

# Logs are collected in a folder of their own; callers get two files.
open_folders() {
  out=${out:-gpu-report/$command}
  mkdir -p "$out" && : >"$out/report.md" || fail 74 "cannot write to '$out'"
  out=$(cd "$out" && pwd)
  rm -f "$out/report.md" "$out/report.tgz"
  work=$(mktemp -d "${TMPDIR:-/tmp}/anyorder-check.XXXXXX") || fail 74 "cannot write to '${TMPDIR:-/tmp}'"
  mkdir "$work/logs" "$work/commands"
  : >"$work/plan.tsv" && : >"$work/results.tsv"
}

give_up() { rm -rf "$work"; fail "$@"; }

# However this ends, there is a report of what was seen.
report() {
  stop_clocks
  list_gpu_processes
  python3 "$here/report.py" "$work" --out "$out" --call "$command" --seconds $((SECONDS - started))
  status=$?
  if [ ! -e "$out/report.tgz" ]; then  # a fault of the report's own must not cost what was seen
    find "$work/logs" -size +4M -delete
    tar -czf "$out/report.tgz" -C "$work" --exclude ./runs . 2>/dev/null
    status=74
  fi
  rm -rf "$work"
  exit $status
}

look_at_machine() {
  timeout -k 5 "$environment_seconds" python3 "$here/environment.py" "$folder" >"$work/environment.tsv" || {
    grep -q '^gpus' "$work/environment.tsv" ||
      printf 'gpus\t0\nno_gpu\tthe driver did not say how many GPUs there are within %s s\n' "$environment_seconds" >>"$work/environment.tsv"
    printf 'environment\tended early, after at most %s s\n' "$environment_seconds" >>"$work/environment.tsv"
  }
  gpus=$(sed -n 's/^gpus\t//p' "$work/environment.tsv")
  no_gpu=$(sed -n 's/^no_gpu\t//p' "$work/environment.tsv")
  old_driver=$(sed -n 's/^old_driver\t//p' "$work/environment.tsv")
  cat "$work/environment.tsv"
  local glibc glibc_at_least
  glibc=$(sed -n 's/^glibc\t//p' "$work/environment.tsv")
  glibc_at_least=$(sed -n 's/^glibc_at_least\t//p' "$work/environment.tsv")
  [ -z "$glibc" ] || [ "$(printf '%s\n' "$glibc_at_least" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
    give_up 74 "the bundle needs glibc $glibc_at_least or newer, and this is $glibc; make one on a system that is no newer than this (cmake --build build --target bundle)"
  [ "${gpus:-0}" -gt 0 ] || echo "no GPU: what needs one is not run ($no_gpu)"
  [ -z "$old_driver" ] || echo "$old_driver: what needs a GPU is not run"
}

# The programs find CUDA's libraries where the toolkit is; pip's copies (NCCL, above all) serve
# where it has none. Other people's programs get the environment as it was given: theirs may bring
# libraries of other versions.
set_library_path() {
  given=(env -u LD_LIBRARY_PATH ${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"})
  local packages
  packages=$(python3 "$here/environment.py" --package-folders)
  [ -z "$packages" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${CUDA_HOME:+$CUDA_HOME/lib64:}/usr/local/cuda/lib64:$packages"
}

main() {
  parse "$@"
  find_programs
  set_library_path
  if [ "$command" = prepare ]; then prepare; exit; fi
  open_folders
  trap 'trap - INT TERM; end_check; report' INT TERM
  ulimit -c 0  # the dumps of failing programs, with all that they have mapped, would fill the disk
  look_at_machine
  start_clocks
  case $command in
    all) for each in smoke speed depth networks peers; do run_part $each "${seconds:+$((seconds * ${part_seconds[$each]} / 2160))}"; done ;;
    rerun) rerun "${seconds:-540}" ;;
    *) run_part "$command" "$seconds" ;;
  esac
  report
}

main "$@"
