# A real time limit: Slurm's warning comes before it, the run saves and goes back into the queue by
# itself, and goes on. Takes a minute: Slurm knows no limit below one, looks at it every 30 s, and
# so warns 24 to 30 s after the start.
. "$here/submitted.sh"
# The first start waits a while before it trains, and evaluations, which decide no result, take
# time: the warning falls into training.
mkdir -p "$run/slurm" && echo '[ -n "${SLURM_RESTART_COUNT:-}" ] || sleep 15' >"$run/slurm/environment.sh"
submit_run --time 1 --signal-seconds 50 --set eval.shards="$work/shards" --set eval.every=1 --set eval.batch_size=2 --set eval.batches=30
await_commit
await 60 restarted 1
x scontrol update jobid=$job timelimit=30 || fail "no more time"  # once is enough
expect_text '"event":"stop".*"exit_status":75' "$run/ledger.jsonl"
expect_text "stopping: the ranks save a checkpoint first" "$run"/slurm/job-$job.log
expect_finished 200
expect_nothing_redone "$run"
# On a busy machine the next limit may come before the new one counts.
[ "$(starts "$run")" -ge 2 ] || fail "$(starts "$run") starts"
