# cluster: ANYORDER_SLURM_NODES=2 ANYORDER_SLURM_GPUS=2
# Ranks that would not find each other stop before they write, with the fix.
mkdir $name/run && cp reference/config.toml $name/run
rank=("$bin/anyorder-train" --run-dir "$work/$name/run" --run-id x --attempt 1)
timeout 30 "$here/cluster.sh" x srun -N2 --ntasks-per-node=2 --mpi=none "${rank[@]}" >$name/log 2>&1
expect_status $? 64 "srun without PMIx"
expect_text "SLURM_STEP_NUM_TASKS=4 promises 4 ranks.*srun --mpi=pmix" $name/log
[ "$(grep -c '^anyorder-train: ' $name/log)" -eq 1 ] || fail "not one line for all: $(cat $name/log)"
# A launch whose ranks are told to be more than they are: as with two MPI libraries in one
# environment.
ANYORDER_WORLD_SIZE=4 timeout 30 "$here/cluster.sh" x srun -N2 --ntasks-per-node=1 --mpi=pmix "${rank[@]}" >$name/log 2>&1
expect_status $? 64 "fewer ranks than promised"
expect_text "ANYORDER_WORLD_SIZE=4 promises 4 ranks but MPI sees 2" $name/log
# GPUs that Slurm counts and the step does not get.
timeout 30 "$here/cluster.sh" x srun -N1 -n1 --gpus-per-node=2 --mpi=pmix env -u CUDA_VISIBLE_DEVICES -u ROCR_VISIBLE_DEVICES "${rank[@]}" >$name/log 2>&1
expect_status $? 64 "no GPU of two"
expect_text "SLURM_GPUS_ON_NODE=2 promises GPUs" $name/log
# Nodes without a rank have a service that never votes.
timeout 30 "$here/cluster.sh" x srun -N1 -n2 --mpi=pmix "${rank[@]}" --nodes n1,n2 >$name/log 2>&1
expect_status $? 64 "an empty node"
expect_text "2 nodes, but MPI placed ranks on 1" $name/log
[ "$(ls -A $name/run)" = config.toml ] || fail "something was written: $(ls -A $name/run)"
"$anyorder" launch --backend slurm --config "$config" --run-dir $name/new --set data.shards="$work/shards" >$name/log 2>&1
expect_status $? 64 "no job"
expect_text "anyorder submit" $name/log
[ ! -e $name/new ] || fail "something was written"
