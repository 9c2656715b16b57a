# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# A node's link is cut and its processes live: the run goes on without it, its old ranks and service
# end by themselves, and when the link is back nothing of them disturbs the run.
. "$here/life.sh"
needs_machines
train run -N3 --ntasks-per-node=1 --no-kill --
old=$(cluster nx n2 pgrep -f 'anyorder-(train|ckptd) --run-dir' | paste -sd,)
[ -n "$old" ] || fail "nothing runs on n2"
cluster cut n2
restarted() { [ "$(starts "$run")" -ge 2 ]; }
await restarted
no_old() { ! cluster nx n2 ps -o pid= -p "$old" >/dev/null; }
await no_old
cluster heal n2
expect_finished
[ "$(last_start ranks)" = 2 ] || fail "the last start has $(last_start ranks) ranks"
