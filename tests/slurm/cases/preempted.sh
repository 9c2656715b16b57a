# A job of higher priority takes all nodes: the run saves, is requeued by Slurm, and goes on when
# the other is done.
. "$here/submitted.sh"
submit_run
await_commit
other=$(submit -p high -N4 --exclusive --output=/dev/null --wrap 'sleep 2')
await_job $other COMPLETED
await restarted 1
expect_finished
expect_nothing_redone "$run"
