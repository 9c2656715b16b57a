# From text to a trained model by dependency, then the rules for several jobs of one run.
x "$anyorder" prep --input "$work/prepare/corpus.txt" --output "$work/$name/shards" --vocab-size 300 --no-filter --no-dedup --slurm 2 >$name/merge 2>$name/err
expect_status $? 0 "prep --slurm: $(cat $name/err)"
request=("$anyorder" submit --config "$config" --run-dir "$work/$name/run" --set data.shards="$work/$name/shards" --nodes 2 --ranks-per-node 2 --time 30)
x "${request[@]}" --after "$(cat $name/merge)" >$name/job 2>$name/err; expect_status $? 0 "submit: $(cat $name/err)"
expect_text "holds no dataset yet" $name/err
job=$(cat $name/job)
shown=($name/run/slurm/job-$job.log $name/run/train.log)
x "${request[@]}" --after "$(cat $name/merge)" >$name/second 2>&1; expect_status $? 64 "a second job of the run"
expect_text "job $job of this run is .*--after $job" $name/second
await_job "$job" COMPLETED
expect_text "finished" $name/run/slurm/job-$job.log
expect_text "\"slurm_job\":$job" $name/run/ledger.launcher.jsonl
expect_same_end $name/run
[ "$(job_field "$job" Requeue)" = 1 ] || fail "the job would not be requeued"
# Chained to the job before, however that ended: the run is finished, so this ends at once.
x "${request[@]}" --after "$job" >$name/job 2>$name/err; expect_status $? 0 "a chained job: $(cat $name/err)"
await_job "$(cat $name/job)" COMPLETED
expect_same_end $name/run

# A name that sbatch must read as it is.
odd="$work/$name/it's a run #1"
x "$anyorder" submit --config "$config" --run-dir "$odd" --set data.shards="$work/$name/shards" --nodes 1 --ranks-per-node 1 -- --comment="two words" \
  >$name/job 2>$name/err; expect_status $? 0 "an odd name: $(cat $name/err)"
await_job "$(cat $name/job)" COMPLETED
expect_same_end "$odd"
expect_text finished "$odd/slurm/job-$(cat $name/job).log"
