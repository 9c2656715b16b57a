# cluster: ANYORDER_SLURM_TIMEOUT=3
# A node without power is noticed and its job runs elsewhere; a node that comes back is used again;
# a link that is cut is noticed, too.
down_nodes() { [ "$(x sinfo -h -N -p low -t down -o %N | paste -sd' ')" = "$1" ]; }
job=$(submit -N2 --requeue --open-mode=append --output="$work/$name/log" --wrap 'echo on $(scontrol show hostnames); srun --mpi=none sleep 1000')
await 60 has_lines $name/log '^on ' 1
expect_text "on n1 n2" $name/log
cluster crash n2
await 60 down_nodes n2
await 60 has_lines $name/log '^on ' 2
grep '^on ' $name/log | tail -n 1 | grep -q n2 && fail "started on the dead node: $(cat $name/log)"
cluster boot n2 || fail "boot"
await 60 down_nodes ""
if [ "$(cluster mode)" = netns ]; then
  cluster cut n4; await 60 down_nodes n4
  cluster heal n4; await 60 down_nodes ""
fi
x scancel $job
