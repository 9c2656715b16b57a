# A run as a job: how it is submitted, disturbed and judged. Sourced by the cases of a job's life;
# needs the dataset of prepare.sh.

run=$work/$name/run
shown=($name/submit "$run/slurm/job-*.log" "$run/train.log" "$run/ckptd.log")

# submit_run [OPTION of anyorder submit]...: sets $job. $shape may say otherwise how many nodes and
# ranks.
shape="--nodes 2 --ranks-per-node 2"
submit_run() {
  x "$anyorder" submit --config "$config" --run-dir "$run" $shape --set data.shards="$work/shards" "$@" >$name/job 2>$name/submit ||
    fail "submit: $(cat $name/submit)"
  job=$(tail -n 1 $name/job)
  case $job in "" | *[!0-9]*) fail "submit printed no job: $(cat $name/job)" ;; esac
}

await_commit() { await has_commit "$run"; [ "$(trained "$run")" -lt $((steps - 100)) ] || fail "the run is nearly over, too late to be disturbed"; }
restarted() { [ "$(job_field $job Restarts)" -ge "$1" ] && job_is $job RUNNING; }
