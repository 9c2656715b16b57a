# cluster: none
# A cluster starts, says what it cannot do, and leaves nothing: no process, no link, no mount. Two
# run side by side.
left() {
  pgrep -fa -- "$1" | grep -v "case.sh\|pgrep" 
  grep -lzsxF -- "ANYORDER_SLURM_MARK=$1" /proc/[0-9]*/environ
  grep -F -- "$1" /proc/mounts
}
links() { ip -o link 2>/dev/null | cut -d: -f2; }
before=$(links)
for mode in auto ports; do
  for i in 1 2; do
    env ANYORDER_SLURM_LAB="$ANYORDER_SLURM_LAB/$mode$i" ANYORDER_SLURM_MODE=$mode "$here/cluster.sh" up || exit
  done
  second() { env ANYORDER_SLURM_LAB="$ANYORDER_SLURM_LAB/${mode}2" "$here/cluster.sh" "$@"; }
  first() { env ANYORDER_SLURM_LAB="$ANYORDER_SLURM_LAB/${mode}1" "$here/cluster.sh" "$@"; }
  first x sbatch -N4 --output=/dev/null --wrap "srun --mpi=none sleep 1000" >$name/out || fail "sbatch"
  running() { [ "$(first x squeue -h -t running -o %i | wc -l)" -eq 1 ]; }
  await running
  first up >$name/out 2>&1; expect_status $? 64 "a cluster that runs already"
  first down || fail "down"
  rest=$(left "$ANYORDER_SLURM_LAB/${mode}1"); [ -z "$rest" ] || fail "left by a cluster ($mode): $rest"
  [ "$(second x srun --mpi=none -N4 --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME' | sort | paste -sd' ')" = "n1 n2 n3 n4" ] || fail "its neighbour suffered"
  second down || fail "down"
  rest=$(left "$ANYORDER_SLURM_LAB"); [ -z "$rest" ] || fail "left by the clusters ($mode): $rest"
  [ "$before" = "$(links)" ] || fail "network links changed: $(links)"
done
first x true 2>$name/out; expect_status $? 64 "a command without a cluster"
# Whoever started it is gone: so is the cluster.
(export ANYORDER_SLURM_OWNER=$BASHPID; env ANYORDER_SLURM_LAB="$ANYORDER_SLURM_LAB/orphan" "$here/cluster.sh" up) || exit
gone() { [ -z "$(left "$ANYORDER_SLURM_LAB/orphan")" ]; }
await gone
