# cluster: ANYORDER_SLURM_NODES=2 ANYORDER_SLURM_GPUS=2
# Ranks that would not find each other stop before they write, with the fix.
mkdir $name/run && cp reference/config.toml $name/run
rank=("$bin/anyorder-train" --run-dir "$work/$name/run" --run-id x --attempt 1)
# refuse TEXT ARGUMENTS of srun...
refuse() { expect_refused 64 "$1" timeout 400 "$here/cluster.sh" x srun "${@:2}"; }
refuse "SLURM_STEP_NUM_TASKS=4 promises 4 ranks.*srun --mpi=pmix" \
  -N2 --ntasks-per-node=2 --mpi=none "${rank[@]}"
[ "$(grep -c '^anyorder-train: ' $name/err)" -eq 1 ] || fail "not one line for all: $(cat $name/err)"
# A launch whose ranks are told to be more than they are: as with two MPI libraries in one
# environment.
ANYORDER_WORLD_SIZE=4 refuse "ANYORDER_WORLD_SIZE=4 promises 4 ranks but MPI sees 2" \
  -N2 --ntasks-per-node=1 --mpi=pmix "${rank[@]}"
# GPUs that Slurm counts and the step does not get.
refuse "SLURM_GPUS_ON_NODE=2 promises GPUs" -N1 -n1 --gpus-per-node=2 --mpi=pmix \
  env -u CUDA_VISIBLE_DEVICES -u ROCR_VISIBLE_DEVICES "${rank[@]}"
# Ranks without the service of their node, n1: after the last case it may be busy for a moment.
refuse "scratch.n1' is missing: no checkpoint service" -N1 -w n1 -n2 --mpi=pmix "${rank[@]}" --nodes n1,n2
# Nodes without a rank have a service that never votes.
mkdir $name/run/.launch
{ mktemp -d "$work/$name/anyorder-XXXXXX"; echo; } >$name/run/.launch/scratch.n1
refuse "2 nodes, but MPI placed ranks on 1" -N1 -w n1 -n2 --mpi=pmix "${rank[@]}" --nodes n1,n2
rm $name/run/.launch/scratch.n1 && rmdir $name/run/.launch
[ "$(ls -A $name/run)" = config.toml ] || fail "something was written: $(ls -A $name/run)"
expect_refused 64 "anyorder submit" \
  "$anyorder" launch --backend slurm --config "$config" --run-dir $name/new \
  --set data.shards="$work/shards"
[ ! -e $name/new ] || fail "something was written"
