# Preparation as a job array over the nodes: the bytes of one program, also in a directory whose
# name Slurm must be told of with care. Four files of more than a MiB, and so at least four batches
# of units, which slices share.
mkdir $name/in
for part in 1 2 3 4; do
  for _ in $(seq 80); do sed -n "$part~4p" prepare/corpus.txt; done >$name/in/$part.txt
done
options=(--vocab-size 300 --no-filter --no-dedup)
succeeds "$anyorder" prep --input $name/in --output $name/alone "${options[@]}"
# submit_prep OUTPUT SLICES [-- options of sbatch...]: sets $plan, $slices and $merge to its jobs.
submit_prep() {
  merge=$(x "$anyorder" prep --input "$work/$name/in" --output "$1" "${options[@]}" --slurm "${@:2}" 2>$name/err) ||
    fail "prep --slurm $2: $(cat $name/err)"
  slices=$((merge - 1)) plan=$((merge - 2))
}
odd="$work/$name/a b'%j#"
submit_prep "$odd" 3
shown=("$odd".slurm/*.log)
await_job "$merge" COMPLETED
diff -r $name/alone "$odd" || fail "other bytes than one program's"
[ "$(ls "$odd".slurm/slice-*.log | wc -l)" -eq 3 ] || fail "not a log for each task"

# A slice that is cancelled is named by the merge, what waits for the dataset never starts, and the
# same command again mends it.
submit_prep "$work/$name/second" 2 -- --hold
x "$anyorder" submit --config "$config" --run-dir "$work/$name/never" --set data.shards="$work/$name/second" --after "$merge" >$name/job 2>$name/err
expect_status $? 0 "submit --after: $(cat $name/err)"
x scancel "${slices}_2"
x scontrol release "$plan" "$slices" "$merge"
await_job "$merge" FAILED
expect_text "1 of 2 slices .* not finished: slice 2 .*; run --slice 2/2" $name/second.slurm/merge-$merge.log
await_job "$(cat $name/job)" CANCELLED
submit_prep "$work/$name/second" 2
await_job "$merge" COMPLETED
diff -r $name/alone $name/second || fail "mended to other bytes"

# A task that is requeued in the middle goes on.
submit_prep "$work/$name/third" 2 -- --hold
echo 'if [ "$1" = slice ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then touch "'"$work/$name"'/slice-$SLURM_ARRAY_TASK_ID"; sleep 60; fi' >$name/environment.sh
mkdir -p $name/third.slurm && cp $name/environment.sh $name/third.slurm/
x scontrol release "$plan" "$slices" "$merge"
await test -e $name/slice-1; await test -e $name/slice-2
x scontrol requeue "$slices"
await_job "$merge" COMPLETED
diff -r $name/alone $name/third || fail "requeued to other bytes"
