# cluster: none
# `anyorder launch --hosts` from a machine that trains nothing: refuses what cannot work, stops and
# resumes, and goes on without a host that loses its power.
. "$here/hosts.sh"
starter plm_rsh_agent=nowhere  # --rsh wins
shown+=("$work/$name/log")
printf 'h1 slots=1   # of mpirun\nh2 slots=2\n\nh3\n' >$name/hostfile
# launch HOSTS RUN [options]: in place of the calling (sub)shell.
launch() {
  local hosts=$1 to=$2; shift 2
  inside head "$anyorder" launch --hosts "$hosts" --rsh "${rsh:-$here/hosts_agent.sh}" --config "$config" --run-dir "$to" \
    --set data.shards="$work/shards" "$@"
}
refuse() {
  local status=$1 text=$2; shift 2
  (launch "$@") >$name/log 2>&1; expect_status $? "$status" "$*"
  expect_text "$text" $name/log
}
refuse 64 "run directory '/tmp/run' is not the same on node h[12]" h1:1,h2:1 /tmp/run
refuse 74 "host h9 cannot be reached by '.*hosts_agent.sh'" h1:1,h9:1 "$run"
refuse 64 "is no file, nor a list such as a:2,b:2" h1:x "$run"
refuse 64 "is more than the 4 slots of --hosts" "$name/hostfile" "$run" --ranks 5
rsh=nowhere refuse 64 "there is no 'nowhere'" h1 "$run"

launch "$name/hostfile" "$run" >$name/log 2>&1 & job=$!
await has_commit "$run"
on_host head pkill -TERM -f "^$anyorder launch --hosts "; wait $job; expect_status $? 75 "after SIGTERM"
expect_saved_where_it_stopped "$run"
expect_starts 1 4 '["h1","h2","h3"]'
for host in h1 h2 h3; do await no_services $host; done

# Without --hosts it would train on this machine, with as many ranks or with one.
expect_refused 64 "the last start ran 4 ranks on h1, h2, h3; name its machines with --hosts, or --ranks N" "$anyorder" launch "$run"
"$anyorder" status "$run" >$name/status 2>&1; expect_text "^resume .* --hosts HOSTS   (before: 4 ranks on h1 h2 h3)" $name/status

# A host without power: its ranks and service are gone, the others go on.
launch "$name/hostfile" "$run" --resume required >$name/log 2>&1 & job=$!
await grep -q "resuming after step" $name/log
machine_crash h3
wait $job; expect_status $? 0 "after a lost host"
expect_text "continuing without host h3" $name/log
expect_same_end "$run"
[ "$(last_start ranks) $(last_start nodes)" = '3 ["h1","h2"]' ] || fail "the last start: $(last_start ranks) $(last_start nodes)"
"$anyorder" inspect "$run" --ledger >$name/audit 2>&1 || fail "inspect --ledger: $(cat $name/audit)"
for host in h1 h2; do
  await no_services $host
  [ -z "$(on_host $host sh -c 'ls -d /tmp/anyorder-?????? /dev/shm/anyorder-?????? 2>/dev/null')" ] || fail "$host keeps directories"
done
