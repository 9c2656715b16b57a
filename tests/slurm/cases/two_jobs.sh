# Two submissions of one run directory: the second is refused by name of the first, and so is its
# script if somebody starts it all the same.
. "$here/submitted.sh"
submit_run
first=$job
x "$anyorder" submit --config "$config" --run-dir "$run" --nodes 2 --ranks-per-node 2 --set data.shards="$work/shards" >$name/second 2>&1
expect_status $? 64 "a second submission"
expect_text "$first" $name/second
[ "$(x squeue -h -o %A | wc -l)" -eq 1 ] || fail "the second submission is queued"
await_commit
script=$run/slurm/train.sbatch
second=$(submit --output="$work/$name/second.log" "$script")
over() { [ "$(job_field $second JobState)" = FAILED ]; }
await 40 over
[ "$(job_field $second ExitCode)" = 64:0 ] || fail "the second job ended with $(job_field $second ExitCode)"
expect_text "in use by .*job $first" $name/second.log
expect_finished
[ "$(starts)" -eq 1 ] || fail "$(starts) starts: the second job disturbed the first"
