# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# A node's slurmd dies with the job's tasks, and the node itself lives: the others' connections
# break at once, Slurm is told nothing.
. "$here/life.sh"
needs_machines
train run -N3 --ntasks-per-node=1 --no-kill --
cluster nx n3 pkill -9 'slurmd|slurmstepd|anyorder'
expect_finished
[ "$(starts "$run")" -ge 2 ] && [ "$(last_start nodes)" = '["n1","n2"]' ] || fail "the last start: $(last_start nodes)"
