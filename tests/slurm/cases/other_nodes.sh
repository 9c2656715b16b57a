# cluster: ANYORDER_SLURM_GPUS=0
# A run stops on four nodes, goes on with two ranks on each of two by mpirun, and on one node with
# as many ranks as it has microbatches.
. "$here/life.sh"
train run -N4 --ntasks-per-node=1 --
x scancel --batch --signal=USR1 $job
await_job $job FAILED
expect_text "launch ended with 75" $name/log
# Somebody has taken Open MPI's own names in /tmp of the nodes: nobody needs them.
if [ "$(cluster mode)" = netns ]; then
  for node in n1 n2 n3 n4; do cluster nx $node sh -c 'touch "/tmp/ompi.$(hostname).$(id -u)"' || fail "a name on $node"; done
fi
train run -N2 --ntasks-per-node=2 -- --mpi mpirun
await has_step $((steps / 2))
x scancel --batch --signal=USR1 $job
await_job $job FAILED
expect_text "ranks by mpirun" $name/log
[ "$(last_start ranks)" = 4 ] || fail "mpirun: $(last_start ranks) ranks"
train run -N1 --ntasks-per-node=4 -- --ranks-per-node 3
expect_finished
expect_nothing_redone "$run"
[ "$(last_start ranks)" = 3 ] || fail "the last start has $(last_start ranks) ranks"
