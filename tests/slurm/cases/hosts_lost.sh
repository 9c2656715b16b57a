# cluster: none
# A host whose link is cut for good: mpirun's daemons notice it, all ranks end on both sides, and
# the run goes on on what is left.
. "$here/hosts.sh"
run=$work/$name/run; shown=($run/train.log $run/ckptd.log)
new_run $run
start_services $run 1 h1 h2 h3
start_ranks $run 1 1 h1 h2 h3
await 60 has_commit $run
machine_cut h3; cut=$(now_ms)
wait $job; status=$?
[ $status -ne 0 ] || fail "the run ended well although its last host was cut off"
noticed=$(($(now_ms) - cut))
expect_text "ORTE has lost communication with a remote daemon" $run/train.log
await 30 no_ranks
echo "noticed after $noticed ms (status $status), all ranks gone after $(($(now_ms) - cut)) ms"
end_services h1 h2
start_services $run 2 h1 h2
start_ranks $run 2 2 h1 h2
wait $job; expect_status $? 0 "on the hosts that are left"
expect_text "4 ranks.*resuming after step" $run/train.log
expect_same_end $run
await 90 no_services h3
