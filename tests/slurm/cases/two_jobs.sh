# The script of a run that trains already, started by somebody once more, is refused by name of the
# job that trains it. A second `anyorder submit` is submit.sh's.
. "$here/submitted.sh"
submit_run
first=$job
await_commit
second=$(submit --output="$work/$name/second.log" "$run/slurm/train.sbatch")
await_job $second FAILED
[ "$(job_field $second ExitCode)" = 64:0 ] || fail "the second job ended with $(job_field $second ExitCode)"
expect_text "in use by .*job $first" $name/second.log
expect_finished
[ "$(starts "$run")" -eq 1 ] || fail "$(starts "$run") starts: the second job disturbed the first"
