# cluster: ANYORDER_SLURM_REQUEUE_EXIT=75
# Slurm starts a job again when its script ends with the site's exit status for that.
cat >$name/job <<'END'
#!/bin/bash
trap 'exit 75' USR1
echo "start ${SLURM_RESTART_COUNT:-0}"
for i in $(seq 600); do sleep 0.1; done
END
job=$(submit -n1 --requeue --open-mode=append --output="$work/$name/log" $name/job)
await grep -qs '^start 0' $name/log
x scancel --batch --signal=USR1 $job || fail "scancel"
await grep -q '^start 1' $name/log
[ "$(grep '^start ' $name/log | paste -sd' ')" = "start 0 start 1" ] || fail "starts: $(cat $name/log)"
[ "$(job_field $job Restarts)" -eq 1 ] || fail "Slurm counts $(job_field $job Restarts) restarts"
x scancel $job
await_job $job CANCELLED
