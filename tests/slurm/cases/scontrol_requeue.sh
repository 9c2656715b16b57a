# `scontrol requeue` in the middle of training: the run saves, waits in the queue, and goes on where
# it stopped.
. "$here/submitted.sh"
submit_run
await_commit
x scontrol requeue $job || fail "scontrol requeue"
await restarted 1
expect_finished
expect_nothing_redone "$run"
[ "$(starts "$run")" -eq 2 ] || fail "$(starts "$run") starts"
