# Open MPI on pretended hosts without Slurm; sourced by the cases hosts_*.sh after `# cluster:
# none`.
#
# mpirun runs on the head and starts its daemons on h1, h2, ... through hosts_agent.sh, as it would
# through ssh. Each host has its own checkpoint service. What `anyorder launch --backend slurm` does
# in a job is done by hand here; health_server_program hears the services in its place.

why=$(. "$here/machines.sh"; machines_impossible)
[ -z "$why" ] || skip "$name needs hosts with a network of their own: $why"
state=$ANYORDER_SLURM_LAB/hosts
prefix=h
num_machines=3
run=$work/$name/run
shown=("$run/train.log" "$run/ckptd.log")
shared_paths="$(cd "$here/../.." && pwd) $bin $work"
mkdir -p "$state"
. "$here/machines.sh"
trap 'status=$?; machines_down; (exit $status); finish' EXIT
machines_up || exit 70
for i in $(seq $num_machines); do machine_boot h$i || exit 70; done

export ANYORDER_HOSTS=$state
# starter NAME=VALUE...: parameters of what starts ranks; Open MPI 5 has other names for them.
starter() { local one; for one in "$@"; do export "OMPI_MCA_$one" "PRTE_MCA_${one/plm_rsh/plm_ssh}"; done; }
starter plm_rsh_agent=$here/hosts_agent.sh oob_tcp_if_include=$net.0/24
export OMPI_MCA_btl_tcp_if_include=$net.0/24
# mpirun's daemons ask each other whether they live; without this a cut link is not noticed within a
# minute, nor ever by the far side.
starter oob_tcp_keepalive_time=2 oob_tcp_keepalive_intvl=1 oob_tcp_keepalive_probes=3

# Processes of a program on a host: a machine's first processes see only their own.
on_host() { local host=$1; shift; (inside "$host" "$@"); }
ranks_on() { on_host "$1" pgrep -f "^$bin/anyorder-train " | wc -l; }
services_on() { on_host "$1" pgrep -f "^$bin/anyorder-ckptd " | wc -l; }

# start_services START RANKS_PER_HOST HOST...: one on each host, which listen when this returns, and
# who hears them. health_limits: seconds of waiting until a report, until the end, and of silence.
health_limits="60 900 60"
start_services() {
  local start=$1 ranks=$2 hosts host; shift 2
  hosts=$(echo "$*" | tr ' ' ,)
  on_host head pkill -f '/slurm.health_server_program '
  rm -f "$run/.launch/health-$start"
  (inside head "$bin/slurm.health_server_program" "$run" "$start" "$hosts" $(($# * ranks)) $health_limits >>"$run/train.log" 2>&1 </dev/null) &
  disown
  await test -e "$run/.launch/health-$start"
  local before; before=$(grep -c "serving '" "$run/ckptd.log" 2>/dev/null)
  for host in "$@"; do
    (inside "$host" "$bin/anyorder-ckptd" --run-dir "$run" --run-id hosts --attempt "$start" --nodes "$hosts" \
      --idle-seconds 10 >>"$run/ckptd.log" 2>&1 </dev/null) &
    disown
  done
  await has_services $((${before:-0} + $#))
}

has_services() { [ "$(grep -c "serving '" "$run/ckptd.log")" -ge "$1" ]; }

# start_ranks START RANKS_PER_HOST HOST...: mpirun in the background; sets $job.
start_ranks() {
  local start=$1 ranks=$2 hosts list; shift 2
  hosts=$(echo "$*" | tr ' ' ,)
  list=$(printf ",%s:$ranks" "$@")
  export ANYORDER_WORLD_SIZE=$(($# * ranks))
  # A name that no killed mpirun used: prterun would not start.
  (inside head env PRTE_MCA_prte_local_tmpdir_base=$state mpirun --host "${list#,}" -n $(($# * ranks)) --bind-to none -x ANYORDER_WORLD_SIZE "$bin/anyorder-train" --run-dir "$run" --run-id hosts \
    --attempt "$start" --nodes "$hosts" >>"$run/train.log" 2>&1 </dev/null) &
  job=$!
}

# train_on_three: the reference's configuration on h1, h2 and h3, until the first commit.
train_on_three() {
  mkdir -p "$run/.launch" && cp "$work/reference/config.toml" "$run/" || fail "no configuration"
  start_services 1 1 h1 h2 h3
  start_ranks 1 1 h1 h2 h3
  await has_commit "$run"
}

# finish_on HOST...: two ranks on each go on from what h1 and h2 had staged, to the undisturbed
# run's end.
finish_on() {
  local host
  for host in h1 h2; do on_host $host pkill -TERM -f "^$bin/anyorder-ckptd "; done
  for host in h1 h2; do await no_services $host; done
  start_services 2 2 "$@"
  start_ranks 2 2 "$@"
  wait $job; expect_status $? 0 "on what is left: $*"
  expect_text "$((2 * $#)) ranks.*resuming after step" "$run/train.log"
  expect_same_end "$run"
}
no_services() { [ "$(services_on "$1")" -eq 0 ]; }
no_ranks() { [ "$(ranks_on h1)$(ranks_on h2)$(ranks_on h3)" = 000 ]; }
