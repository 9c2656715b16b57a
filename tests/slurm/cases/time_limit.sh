# A real time limit: Slurm's warning comes before it, the run saves and goes back into the queue by
# itself, and goes on. Takes a minute: Slurm knows no limit below one, looks at it every 30 s, and
# so warns 24 to 30 s after the start.
. "$here/submitted.sh"
# The first start waits a while before it trains, and then trains in short turns: the warning falls
# into training.
mkdir -p "$run/slurm" && echo '[ -n "${SLURM_RESTART_COUNT:-}" ] || sleep 15' >"$run/slurm/environment.sh"
submit_run --time 1 --signal-seconds 50
await_commit
warned() { grep -qs "stopping: the ranks save a checkpoint first" "$run"/slurm/job-$job.log; }
ranks() { pkill "$1" -f "^$bin/anyorder-train --run-dir $run "; }
train_a_turn() { ranks -CONT; sleep 0.05; ranks -STOP; sleep 0.3; warned; }
await train_a_turn
ranks -CONT
await restarted 1
x scontrol update jobid=$job timelimit=30 || fail "no more time"  # once is enough
expect_text '"event":"stop".*"exit_status":75' "$run/ledger.jsonl"
expect_finished
expect_nothing_redone "$run"
# On a busy machine the next limit may come before the new one counts.
[ "$(starts "$run")" -ge 2 ] || fail "$(starts "$run") starts"
