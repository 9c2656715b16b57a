# Ranks on four nodes find each other through srun and PMIx, through mpirun inside a job, and
# through mpirun alone do what it says.
x srun --mpi=pmix -N4 --ntasks-per-node=2 "$bin/slurm.hello_mpi" 20 >$name/srun 2>&1; expect_status $? 0 "srun --mpi=pmix: $(tail -n 3 $name/srun)"
expect_text "sums are right" $name/srun
[ "$(grep -c '^rank [0-7] of 8 on ' $name/srun)" -eq 8 ] || fail "not eight ranks: $(cat $name/srun)"
if [ "$(cluster mode)" = netns ]; then
  [ "$(sed -n 's/^rank .* on //p' $name/srun | sort | uniq -c | awk '{ print $1 $2 }' | paste -sd' ')" = "2n1 2n2 2n3 2n4" ] || fail "not two ranks on each node: $(cat $name/srun)"
fi
job=$(submit -N3 --ntasks-per-node=1 --output="$work/$name/mpirun" --wrap "mpirun --bind-to none $bin/slurm.hello_mpi 5")
await_job $job COMPLETED 30
expect_text "rank 2 of 3" $name/mpirun
expect_text "sums are right" $name/mpirun
