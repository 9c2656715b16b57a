# cluster: none
# `anyorder launch --hosts` from a machine that trains nothing: refuses what cannot work, stops and
# resumes, and goes on without a host that loses its power.
. "$here/hosts.sh"
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

train
on_host head pkill -TERM -f "^$anyorder launch --hosts "; wait $job; expect_status $? 75 "after SIGTERM"
expect_saved_where_it_stopped "$run"
expect_starts 1 4 '["h1","h2","h3"]'
await are_idle

# Without --hosts it would train on this machine, with as many ranks or with one.
expect_refused 64 "the last start ran 4 ranks on h1, h2, h3; name its machines with --hosts, or --ranks N" "$anyorder" launch "$run"
"$anyorder" status "$run" >$name/status 2>&1; expect_text "^resume .* --hosts HOSTS   (before: 4 ranks on h1 h2 h3)" $name/status

# A host without power: its ranks and service are gone, the others go on.
train --resume required
await grep -q "resuming after step" $name/log
machine_crash h3
expect_end_without_h3 3
