# shellcheck shell=bash disable=SC2034,SC2154
# Part of check.sh: what is found out about failed checks with the time that a part has left. The
# first failures get everything, later ones less, and all together end with the part.

first_failures=2     # get every step
middle_failures=4    # up to here: with a core dump, without memcheck; the others run once more with blocking launches
step_seconds=40
bisection_seconds=60  # it computes the reference of each switch on the CPU
is_bisected=""
kernel_filter=()     # of compute-sanitizer, once known

# find_tool NAME: where it is, "" if nowhere.
find_tool() {
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v "$1" ||
    find /opt/nvidia/nsight-compute -maxdepth 2 -name "$1" -perm -u+x 2>/dev/null | sort -V | tail -n 1
}

# set_sanitizer TOOL: the array `sanitizer` is its command, empty without one. Only kernels of ours
# are checked, since cuBLASLt's take minutes; except by initcheck, which must see who writes. Errors
# of the API are left out: libraries ask for what may not be there, and the product checks its own
# calls.
set_sanitizer() {
  sanitizer=()
  if [ ${#kernel_filter[@]} -eq 0 ]; then
    sanitizer_program=$(find_tool compute-sanitizer)
    kernel_filter=(--kernel-name kernel_substring=anyorder)
    [ -z "$sanitizer_program" ] || timeout 10 "$sanitizer_program" --help 2>&1 | grep -q -- --kernel-name ||
      kernel_filter=(--kernel-regex kns=anyorder)  # before 2023.3
  fi
  [ -n "$sanitizer_program" ] || return 0
  sanitizer=("$sanitizer_program" --tool "$1" --error-exitcode 1 --print-limit 5)
  [ "$1" = initcheck ] || sanitizer+=("${kernel_filter[@]}")
  [ "$1" != memcheck ] || sanitizer+=(--report-api-errors no)
}

# step NAME STEP SECONDS COMMAND...: one step for check NAME; the report reads its log.
step() {
  local name=$1 step=$2 limit=$3 left=$((deadline - SECONDS)) begun=$SECONDS status
  shift 3
  [ "$limit" -lt $left ] || limit=$left
  [ "$limit" -gt 0 ] || return 1
  run_limited "$name" "$limit" "$work/logs/$name.$step.log" "$@"
  status=$?
  printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$step" $status $((SECONDS - begun)) "$limit" >>"$work/diagnosis.tsv"
  return $status
}

# The state of the GPU's threads at a fault. The dump itself is read here and thrown away.
read_core_dump() {
  local name=$1 dump debugger
  debugger=$(find_tool cuda-gdb)
  [ -n "$debugger" ] || return 0
  mkdir -p "$work/cores"
  step "$name" coredump $((limits[$name] + 10)) env CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1 \
    CUDA_COREDUMP_FILE="$work/cores/$name.%p" "${words[@]}"
  dump=$(find "$work/cores" -name "$name.*" -type f | head -n 1)
  [ -z "$dump" ] || step "$name" cuda_gdb 30 "$debugger" --batch -nx -ex "target cudacore $dump" -ex "info cuda kernels" -ex "info cuda lanes" \
    -ex bt -ex 'info symbol $errorpc' -ex 'x/3i $errorpc'
  rm -rf "$work/cores"
}

# Attention with one part after another switched on. After a crash or a hang it goes on behind the
# switch that ended it.
bisect_attention() {
  local from=0 status=0 left begun=$SECONDS begin
  [ -z "$is_bisected" ] || return 0
  is_bisected=yes
  : >"$work/logs/bisect.log"
  for _ in {1..12}; do
    left=$((deadline - SECONDS))
    [ $left -gt 0 ] || break
    [ $left -lt $bisection_seconds ] || left=$bisection_seconds
    run_limited bisect $left "$work/logs/bisect.part" "$bin/gpu.device_test" --bisect --from "$from"
    status=$?
    cat "$work/logs/bisect.part" >>"$work/logs/bisect.log" && rm "$work/logs/bisect.part"
    begin=$(grep '^{"bisecting"' "$work/logs/bisect.log" | tail -n 1)
    case $status:$begin in 0:* | 1:* | 64:* | 77:* | *:) break ;; esac
    printf '\n{"bisect": "%s", "crashed": %s}\n' "$(sed 's/{"bisecting": "\([^"]*\)".*/\1/' <<<"$begin")" $status >>"$work/logs/bisect.log"
    from=$(($(sed 's/.*"number": \([0-9]*\).*/\1/' <<<"$begin") + 1))
  done
  printf '%s\t%s\t%s\t%s\t%s\n' bisect bisect $status $((SECONDS - begun)) $bisection_seconds >>"$work/diagnosis.tsv"
}

# diagnose NAME NUMBER: the NUMBERth failure of this part.
diagnose() {
  local name=$1 number=$2
  command_of "$name"
  case ${words[0]} in "$bin/gpu.device_test" | "$bin/gpu_bench") ;; *) return 0 ;; esac
  echo "looking into $name"
  local status
  status=$(awk -F '\t' -v name="$name" '$2 == name { print $3 }' "$work/results.tsv")
  # What hangs raises no exception, and would hang again.
  local is_hung=""
  case $status in 124 | 137) is_hung=yes ;; esac
  [ -n "$is_hung" ] || step "$name" blocking "${limits[$name]}" env CUDA_LAUNCH_BLOCKING=1 "${words[@]}"
  if [[ $name =~ Attention|attention|Ring|KeyGradients|DistanceGradients ]]; then bisect_attention; fi
  [ "$number" -le $middle_failures ] || return 0
  if [ -z "$is_hung" ] && is_crash "$status" "$work/logs/$name.log"; then read_core_dump "$name"; fi
  [ "$number" -le $first_failures ] || return 0
  set_sanitizer memcheck
  [ ${#sanitizer[@]} -eq 0 ] || step "$name" memcheck $step_seconds "${sanitizer[@]}" "${words[@]}"
}

diagnose_failures() {
  local name number=0
  for name in ${failed[@]+"${failed[@]}"}; do
    number=$((number + 1))
    [ $((deadline - SECONDS)) -gt 1 ] || return 0
    diagnose "$name" $number
  done
}
