# cluster: none
# A link that is gone for two seconds costs two seconds: TCP sends again what was lost, and nobody
# starts anything anew.
. "$here/hosts.sh"
# On a busy machine two seconds may become ten before the link is back: mpirun must not give up.
starter oob_tcp_keepalive_probes=60
train
machine_cut h2
sleep 0.5; before=$(trained $run)
sleep 1.5; [ "$(trained $run)" = "$before" ] && [ "$before" -lt $steps ] || fail "steps $before to $(trained $run) were trained without a link"
machine_heal h2
wait $job; expect_status $? 0 "a link that was cut for two seconds"
expect_same_end $run
expect_starts 1 4 '["h1","h2","h3"]'
