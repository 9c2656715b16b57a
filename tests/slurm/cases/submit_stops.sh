# What the submitted script does when Slurm wants the nodes back: it saves at the warning before the
# time limit and comes back by itself; cancelled, it saves and stays away until it is submitted
# again.
run=$work/$name/run
request=("$anyorder" submit --config "$config" --run-dir "$run" --set data.shards="$work/shards" --nodes 2 --ranks-per-node 1)
newest() { ls -d "$run"/checkpoints/step-*[0-9] 2>/dev/null | tail -n 1; }
has_newer_than() { [[ $(newest) > $1 ]]; }  # their number says nothing: older ones are retired

job=$(x "${request[@]}" 2>$name/err) || fail "submit: $(cat $name/err)"
shown=("$run/slurm/job-$job.log" "$run/train.log")
await 60 has_newer_than ""
x scancel --batch --signal=USR1 "$job"  # as --signal does before the time limit
await 60 grep -q "back into the queue" "$run/slurm/job-$job.log"
[ "$(tail -n 1 "$run/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/')" -lt "$steps" ] || fail "the run was over before it could be warned"
before=$(newest)
await 60 has_newer_than "$before"
[ "$(job_field "$job" Restarts)" = 1 ] || fail "the job was not requeued"
x scancel "$job"
await_job "$job" CANCELLED 60
[ "$(trained "$run")" -lt "$steps" ] || fail "the run was over before it could be cancelled"
sleep 2
job_is "$job" CANCELLED || fail "a cancelled job came back"

job=$(x "${request[@]}" 2>$name/err) || fail "submitting again: $(cat $name/err)"
shown=("$run/slurm/job-$job.log" "$run/train.log")
expect_finished
[ ! -e "$run/metrics.redone.jsonl" ] || fail "steps were trained twice"
