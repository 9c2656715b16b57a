# shellcheck shell=bash disable=SC2034,SC2154
# Part of check.sh: runs one check after another, each in a session of its own with a limit, and
# goes on after crashes and hangs.

environment_seconds=25
report_seconds=5                 # kept at the end of a call
mark=anyorder-check-$$-$RANDOM   # in the environment of all that a check starts, so that nothing of it escapes
known=() failed=() suspects=()   # names of checks: all, those that failed, those that failed right after another one had crashed
is_listing=""                    # checks are only listed, not run
crashed=""                       # the check that crashed, until one passes
declare -A limits shards  # by names of checks: seconds; how many processes share its cases, if several

# begin_part NAME SECONDS: the checks that follow belong to it, and have so long together.
begin_part() {
  part=$1 deadline=$((SECONDS + $2))
  failed=() suspects=() crashed=""
  [ ${#names[@]} -gt 0 ] || printf '\n== %s (at most %s s)\n' "$part" "$2"
}

# Processes that carry the mark, whatever sessions and process groups they have made for themselves.
marked() { timeout -k 1 5 grep -lszx "ANYORDER_CHECK=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3; }

# Kills what check $1 has left behind and says what it was.
end_leftovers() {
  local pid pids
  pids=$(marked "$mark")
  [ -n "$pids" ] || return 0
  sleep 0.5  # what is ending by itself is no leftover
  pids=$(marked "$mark")
  for pid in $pids; do
    printf '%s\t%s\t%s\n' "$1" "$pid" "$(tr '\0\t\n' '   ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c 1-160)" >>"$work/leftovers.tsv"
    kill -KILL "$pid" 2>/dev/null
  done
}

# Ends the check that is under way, as when the script is ended. Until they are killed, its
# processes may start others, which the list does not have.
end_check() {
  local pids
  for _ in {1..20}; do
    pids=$(marked "$mark")
    [ -n "$pids" ] || return 0
    kill -KILL $pids 2>/dev/null
    sleep 0.05
  done
}

# run_limited NAME SECONDS LOG COMMAND...: its exit status; 124 or 137 if its time was up. A process
# that even SIGKILL does not end (a hung driver) is left where it is.
run_limited() {
  local name=$1 limit=$2 log=$3 pid end status=137
  shift 3
  ANYORDER_CHECK=$mark setsid timeout -k 2 "$limit" "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  end=$((SECONDS + limit + 5))
  {  # the shell would tell the terminal of each signal
    while kill -0 $pid && [ $SECONDS -lt $end ]; do sleep 0.05; done
    if kill -0 $pid; then
      echo "SIGKILL does not end it" >>"$log"
    else
      wait $pid
      status=$?
    fi
  } 2>/dev/null
  end_leftovers "$name"
  return $status
}

record() { printf '%s\t%s\t%s\t%s\t%s\n' "$part" "$1" "$2" "$3" "$4" >>"$work/results.tsv"; }

# Whether a check that ended with status $1 and log $2 may have harmed the device for the next one.
is_crash() {
  [ "$1" -ge 124 ] || grep -qiE 'CUDA error|illegal memory access|unspecified launch failure|misaligned address|device-side assert' "$2"
}

# Whether this call asks for check $1.
is_wanted() { [ ${#names[@]} -eq 0 ] || [[ " ${names[*]} " == *" $1 "* ]]; }

# check NEED NAME SECONDS COMMAND...: NEED is `gpu` or `any`. Exit status 77 of COMMAND: skipped,
# its last line says why.
check() {
  local need=$1 name=$2 limit=$3 left=$((${deadline:-0} - SECONDS))
  shift 3
  known+=("$name")
  [ -z "$is_listing" ] && is_wanted "$name" || return 0
  printf '%s\t%s\n' "$part" "$name" >>"$work/plan.tsv"
  printf '%s\0' "$@" >"$work/commands/$name"
  [ "$limit" -lt $left ] || limit=$left
  limits[$name]=$limit
  if [ "$need" = gpu ] && [ "${gpus:-0}" -eq 0 ]; then
    record "$name" no-gpu 0 "$no_gpu"
  elif [ "$need" = gpu ] && [ -n "$old_driver" ]; then
    record "$name" old-driver 0 "$old_driver"
  elif [ $left -le 0 ]; then
    record "$name" no-time 0 "the part's time was used up before"
  elif [[ $1 == "$bin"/* && ! -x $1 ]]; then
    record "$name" no-program 0 "${1##*/} is not in this build"
  else
    run_check "$name" "$limit" "$@"
  fi
  python3 "$here/report.py" "$work" --out "$out" --call "$command" --line "$name"
}

run_check() {
  local name=$1 limit=$2 begun=$SECONDS status
  shift 2
  [ -z "${shards[$name]:-}" ] || set -- bash "$here/shards.sh" "${shards[$name]}" "$@"
  run_limited "$name" "$limit" "$work/logs/$name.log" "$@"
  status=$?
  record "$name" $status $((SECONDS - begun)) "$limit"
  if [ $status -eq 0 ] || [ $status -eq 77 ]; then
    crashed=""
    return
  fi
  failed+=("$name")
  [ -z "$crashed" ] || suspects+=("$name $crashed")
  if is_crash $status "$work/logs/$name.log"; then crashed=${crashed:-$name}; else crashed=""; fi
}

# command_of NAME: puts a check's command into the array `words`.
command_of() { mapfile -d '' -t words <"$work/commands/$1"; }

# Once more what failed right after a crash: a device may take one process to recover. It stays
# failed; the report says what came out. Most of the time is left to the diagnosis.
rerun_suspects() {
  local each name left begun status
  for each in ${suspects[@]+"${suspects[@]}"}; do
    name=${each% *} left=$(((deadline - SECONDS) / 4)) begun=$SECONDS
    [ $left -gt 0 ] || return
    command_of "$name"
    [ "${limits[$name]}" -ge $left ] || left=${limits[$name]}
    run_limited "$name" $left "$work/logs/$name.again.log" "${words[@]}"
    status=$?
    printf '%s\t%s\t%s\t%s\n' "$name" "${each#* }" $status $((SECONDS - begun)) >>"$work/reruns.tsv"
    # Where this one fails again, the crash was not the reason, and the others would most likely say
    # the same.
    [ $status -eq 0 ] || return
    remove_failed "$name"
  done
}

# Check $1 needs no diagnosis.
remove_failed() {
  local each rest=()
  for each in "${failed[@]}"; do [ "$each" = "$1" ] || rest+=("$each"); done
  failed=(${rest[@]+"${rest[@]}"})
}

# Clocks, power and throttle reasons every two seconds: before, under load and after.
start_clocks() {
  clocks_pid=""
  [ "${gpus:-0}" -gt 0 ] && command -v nvidia-smi >/dev/null || return
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,clocks_event_reasons.active \
    --format=csv,noheader,nounits -i 0 -l 2 >"$work/clocks.csv" 2>/dev/null </dev/null &
  clocks_pid=$!
  disown
}
stop_clocks() { [ -z "${clocks_pid:-}" ] || kill -KILL "$clocks_pid" 2>/dev/null; }

# What still runs on the GPU; the driver's own words on faults, where they may be read.
list_gpu_processes() {
  [ "${gpus:-0}" -gt 0 ] || return
  timeout -k 1 5 nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader >"$work/gpu_processes.txt" 2>/dev/null
  timeout -k 1 2 dmesg 2>/dev/null | grep -i 'NVRM: Xid' | tail -n 5 >"$work/xid.txt"
}
