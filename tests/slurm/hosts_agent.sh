#!/usr/bin/env bash
# What mpirun calls in place of ssh: hosts_agent.sh HOST WORDS... runs the words, joined, in a shell
# on a pretended host (hosts.sh).
host=$1; shift
exec nsenter -t "$(cat "$ANYORDER_HOSTS/machines/$host.inner")" -n -u -m -i -p --wdns="$PWD" -- bash -c "$*"
