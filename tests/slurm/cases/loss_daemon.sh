# cluster: ANYORDER_SLURM_TIMEOUT=8 ANYORDER_SLURM_GPUS=0
# In Slurm 24.11 a node that does not answer holds up the pings of others.
# A node's slurmd dies with the job's tasks, and the node itself lives: the others' connections
# break at once, Slurm is told nothing.
. "$here/life.sh"
needs_machines
train run -N3 --ntasks-per-node=1 --no-kill --
cluster nx n3 pkill -9 'slurmd|slurmstepd|anyorder'
expect_finished
[ "$(starts "$run")" -ge 2 ] && [ "$(last_start nodes)" = '["n1","n2"]' ] || fail "the last start: $(last_start nodes)"
