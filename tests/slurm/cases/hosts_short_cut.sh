# cluster: none
# A link that is gone for two seconds costs two seconds: TCP sends again what was lost, and nobody
# starts anything anew.
. "$here/hosts.sh"
run=$work/$name/run; shown=($run/train.log $run/ckptd.log)
new_run $run
start_services $run 1 h1 h2 h3
start_ranks $run 1 1 h1 h2 h3
await 60 has_commit $run
machine_cut h2
sleep 0.5; before=$(trained $run)
sleep 1.5; [ "$(trained $run)" = "$before" ] && [ "$before" -lt $steps ] || fail "steps $before to $(trained $run) were trained without a link"
machine_heal h2
wait $job; expect_status $? 0 "a link that was cut for two seconds"
expect_same_end $run
