#!/usr/bin/env bash
# What launch and mpirun call in place of ssh: hosts_agent.sh HOST WORDS... runs the words, joined,
# in a shell on a pretended host (hosts.sh). As through ssh, no input reaches a host whose link is
# cut, nor its end before the connection's, after 20 s without a link; what runs there goes on.
host=$1; shift
is_linked() { [ -n "$(ip link show "v${host#h}" up 2>/dev/null)" ]; }
pass_input() {
  local without=0
  while IFS= read -r line; do is_linked && echo "$line"; done
  until is_linked || [ $((without += 1)) -gt 20 ]; do sleep 1; done
}
end_connection() {
  local without=0
  while [ $without -lt 20 ] && kill -0 $$; do sleep 1; is_linked && without=0 || without=$((without + 1)); done
  kill -9 $$
}
is_linked || { echo "no route to host $host" >&2; exit 255; }
end_connection </dev/null >/dev/null 2>&1 &
exec nsenter -t "$(cat "$ANYORDER_HOSTS/machines/$host.inner")" -n -u -m -i -p --wdns="$PWD" -- bash -c "$*" < <(pass_input 2>/dev/null)
