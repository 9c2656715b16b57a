# cluster: ANYORDER_SLURM_NODES=2
# anyorder status beside the real scontrol: a job that waits, runs, is held up, and ended.
run=$work/$name/run
mkdir -p $run/slurm && cp "$config" $run/config.toml && printf '[data]\nshards = "%s/gone"\n' "$work" >>$run/config.toml
printf '#!/bin/sh\nexec sleep 300\n' >$name/job
# asked FIELD...: of status --json, of the newest job.
asked() { x "$anyorder" status --run-dir $run --json >$name/json || fail "status"; python3 - $name/json "$@" <<'END'
import json, sys
status = json.load(open(sys.argv[1]))
job = (status["slurm"]["jobs"] or [{}])[0]
print(*[job.get(field, "-") for field in sys.argv[2:]], status["state"], sep="|")
END
}
shown=($name/json $name/screen)
first=$(submit -N2 --exclusive -t 10 --output=/dev/null $name/job)
await_job $first RUNNING
touch $run/slurm/job-$first.log
[ "$(asked id state nodes num_nodes restarts partition)" = "$first|RUNNING|n[1-2]|2|0|low|stopped" ] || fail "a running job: $(asked id state nodes num_nodes restarts partition)"
left=$(asked seconds_left | cut -d. -f1)
[ "$left" -gt 400 ] && [ "$left" -le 600 ] || fail "$left s are left of 600"
x "$anyorder" status --run-dir $run >$name/screen || fail "status"
expect_text "^slurm  *job $first RUNNING on n\[1-2\], partition low, [0-9]* min" $name/screen

# The next one of a chain waits for it; both are told.
second=$(submit -N1 --dependency=afterany:$first --output=/dev/null $name/job)
touch $run/slurm/job-$second.log
[ "$(asked id state num_nodes dependency)" = "$second|PENDING|1|afterany:$first(unfulfilled)|queued" ] || fail "a waiting job: $(asked id state num_nodes dependency)"
x "$anyorder" status --run-dir $run >$name/screen && expect_text "^slurm  *job $first RUNNING" $name/screen
x scancel $second && x scancel $first
await_job $first CANCELLED
[ "$(asked id state)" = "$second|CANCELLED|stopped" ] || fail "a cancelled job: $(asked id state)"
touch $run/slurm/job-99999.log
asked id >/dev/null
expect_text '"forgotten": \[' $name/json && expect_text 99999 $name/json
