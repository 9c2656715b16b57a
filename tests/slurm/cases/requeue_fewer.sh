# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# A run has all four nodes and loses the one with script and launcher. --no-kill keeps such a job,
# with nobody to start anything; the watch on another node puts it back into the queue. There it
# waits for a fourth node, until it is told to take the three that are left; the run goes on with
# fewer ranks.
. "$here/submitted.sh"
shape="--nodes 4 --ranks-per-node 1"
submit_run
await_commit
expect_starts 1 4 '["n1","n2","n3","n4"]'
cluster crash n1
requeued() { job_is $job PENDING && [ "$(job_field $job Restarts)" -eq 1 ]; }
await requeued
await x scontrol update JobId=$job NumNodes=3 NumTasks=3 2>$name/update
expect_finished
expect_starts 2 3 '["n2","n3","n4"]'
