# cluster: none
# A host whose link is cut for good: mpirun's daemons notice it, all ranks end on both sides, and
# the run goes on on what is left.
. "$here/hosts.sh"
train_on_three
machine_cut h3; cut=$(now_ms)
wait $job; status=$?
# prterun ends with 0; `anyorder launch` asks the ledger (hosts_launch.sh).
[ $status -ne 0 ] || grep -q "^PRTE has lost" "$run/train.log" || fail "the run ended well although its last host was cut off"
noticed=$(($(now_ms) - cut))
expect_text "[OP]RTE has lost communication with a remote daemon" $run/train.log
await no_ranks
echo "noticed after $noticed ms (status $status), all ranks gone after $(($(now_ms) - cut)) ms"
finish_on h1 h2
await no_services h3
