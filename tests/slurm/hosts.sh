# `anyorder launch --hosts` on pretended hosts without Slurm; sourced by the cases hosts_*.sh after
# `# cluster: none`. It runs on the head, which trains nothing, and reaches h1, h2 and h3 through
# hosts_agent.sh, as it would through ssh.

why=$(. "$here/machines.sh"; machines_impossible)
[ -z "$why" ] || skip "$name needs hosts with a network of their own: $why"
state=$ANYORDER_SLURM_LAB/hosts
prefix=h
num_machines=3
run=$work/$name/run
shown=("$work/$name/log" "$run/ckptd.log")
shared_paths="$(cd "$here/../.." && pwd) $bin $work"
mkdir -p "$state"
. "$here/machines.sh"
trap 'status=$?; machines_down; (exit $status); finish' EXIT
machines_up || exit 70
for i in $(seq $num_machines); do machine_boot h$i || exit 70; done

export ANYORDER_HOSTS=$state
# starter NAME=VALUE...: parameters of what starts ranks; Open MPI 5 has other names for them.
starter() { local one; for one in "$@"; do export "OMPI_MCA_$one" "PRTE_MCA_${one/plm_rsh/plm_ssh}"; done; }
starter plm_rsh_agent=nowhere  # --rsh wins

on_host() { local host=$1; shift; (inside "$host" "$@"); }
is_idle() { ! on_host "$1" pgrep -f "^$bin/anyorder" >/dev/null 2>&1; }
are_idle() { is_idle h1 && is_idle h2 && is_idle h3; }

printf 'h1 slots=1   # of mpirun\nh2 slots=2\n\nh3\n' >$name/hostfile
# launch HOSTS RUN [options]: in place of the calling (sub)shell.
launch() {
  local hosts=$1 to=$2; shift 2
  inside head "$anyorder" launch --hosts "$hosts" --rsh "${rsh:-$here/hosts_agent.sh}" --config "$config" --run-dir "$to" \
    --set data.shards="$work/shards" "$@"
}
# train [options]: on all hosts, until the first commit; sets $job.
train() {
  launch "$name/hostfile" "$run" "$@" >$name/log 2>&1 & job=$!
  await has_commit "$run"
}

# expect_end_without_h3 STARTS: the last of them trained on the other hosts to the undisturbed run's
# end, and no process is left, not even on h3.
expect_end_without_h3() {
  wait $job; expect_status $? 0 "after a lost host"
  expect_text "continuing without host h3" $name/log
  expect_text "3 ranks.*resuming after step" $name/log
  expect_same_end "$run"
  expect_starts "$1" 3 '["h1","h2"]'
  await are_idle
  for host in h1 h2; do
    [ -z "$(on_host $host sh -c 'ls -d /tmp/anyorder-?????? /dev/shm/anyorder-?????? 2>/dev/null')" ] || fail "$host keeps directories"
  done
}
