# `scancel` ends the job, but nothing is lost: the next submission goes on where it stopped.
. "$here/submitted.sh"
submit_run
await_commit
x scancel $job || fail "scancel"
await_job $job CANCELLED
no_steps() { [ -z "$(x squeue -h -s -o %i)" ]; }
await no_steps
sleep 2
job_is $job CANCELLED || fail "a cancelled job came back"
expect_saved_where_it_stopped "$run"
[ "$(trained "$run")" -lt $steps ] || fail "cancelled too late"
submit_run
expect_finished
expect_nothing_redone "$run"
