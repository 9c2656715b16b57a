# Pretended GPUs are given out: each task sees its own, a node's eight at most.
[ -e "$ANYORDER_SLURM_LAB/gres.conf" ] || skip "pretended GPUs need root, for mknod"
# Without srun's notices that it waits for the job before.
seen() { x srun --mpi=none "$@" sh -c 'echo $SLURMD_NODENAME:$CUDA_VISIBLE_DEVICES' 2>&1 | grep -v '^srun: job [0-9]* ' | sort | paste -sd' '; }
[ "$(seen -N2 --ntasks-per-node=1 --gpus-per-node=2)" = "n1:0,1 n2:0,1" ] || fail "two a node: $(seen -N2 --ntasks-per-node=1 --gpus-per-node=2)"
[ "$(seen -N1 --ntasks-per-node=2 --gpus-per-task=2)" = "n1:0,1 n1:2,3" ] || fail "two a task: $(seen -N1 --ntasks-per-node=2 --gpus-per-task=2)"
[ "$(seen -N1 --gpus-per-node=8)" = "n1:0,1,2,3,4,5,6,7" ] || fail "all of a node: $(seen -N1 --gpus-per-node=8)"
seen -N1 --gpus-per-node=9 | grep -q "Requested node configuration is not available" || fail "nine of eight GPUs: $(seen -N1 --gpus-per-node=9)"
