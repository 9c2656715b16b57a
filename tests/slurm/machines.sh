# Pretended machines on one machine; sourced by cluster.sh and hosts.sh.
#
# A "head" in network, host name, mount, IPC and PID namespaces of its own, and inside it machines
# in further ones: each has a name, an address 10.77.0.I, /dev/shm and /tmp, can be powered off
# (machine_crash) and unplugged (machine_cut). Because all of them live in the head's PID namespace,
# killing its first process ends every process, link and mount at once: the kernel does it, so no
# code can forget any.
#
# The caller sets: state (a directory of its own), num_machines, prefix (of the names).
# What all machines share is the whole file system but /tmp and /dev/shm; of /tmp they share $state
# and the paths in $shared_paths.

net=10.77.0
ready_limit_s=200

complain() { echo "${0##*/}: $*" >&2; return 1; }

# Why machines cannot be made here; nothing if they can.
machines_impossible() {
  local tool
  for tool in unshare nsenter ip pgrep; do
    command -v $tool >/dev/null || { echo "'$tool' is not installed (launcher/install_packages.sh tests)"; return; }
  done
  [ "$(id -u)" -eq 0 ] || { echo "namespaces of network and processes need root"; return; }
  unshare -n -u -m -i -p --fork --kill-child --mount-proc -- sh -c 'ip link add br0 type bridge && ip link add v0 type veth peer name v1 &&
    mount -t tmpfs tmpfs /dev/shm' >/dev/null 2>&1 || echo "this container may not make namespaces, bridges and mounts (run it with CAP_SYS_ADMIN and CAP_NET_ADMIN)"
}

# The first process of a machine: reaps orphans and sleeps. Its command line ends in "machine STATE
# NAME".
sleeper='trap : TERM INT HUP; while :; do sleep 86400 & wait $!; done'

machine_pid() { cat "$state/machines/$1" 2>/dev/null; }
# Still the process that we started, and not another one with its number?
machine_lives() {
  local pid; pid=$(machine_pid "$1") && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q " machine $state $1 \$"
}

# inside MACHINE COMMAND...: in all its namespaces, in the directory of the caller. Replaces the
# calling (sub)shell.
inside() {
  local pid; pid=$(machine_pid "$1") || { complain "machine '$1' does not run"; return 1; }
  shift
  exec nsenter -t "$pid" -n -u -m -i -p --wdns="$PWD" -- "$@"
}

# first_process PID FILE: waits until FILE tells that the machine below process PID has begun;
# prints the machine's first process.
first_process() {
  local started=$1 ready=$2 i
  for i in $(seq $((ready_limit_s * 100))); do
    [ -e "$ready" ] && { while started=$(pgrep -P "$started" -o) && [ "$(awk '/^NSpid/ { print $NF }' "/proc/$started/status")" != 1 ]; do :; done
      [ -n "$started" ] && echo "$started" && return; return 1; }
    kill -0 "$started" 2>/dev/null || return 1
    sleep 0.01
  done
  return 1
}

# Ends the head when $ANYORDER_SLURM_OWNER (a process) is gone: CTest kills what takes too long, and
# then nobody calls machines_down.
watch_owner() {
  local head=$1 owner=$2
  (trap - EXIT; while kill -0 "$owner" 2>/dev/null && kill -0 "$head" 2>/dev/null; do sleep 1; done; machine_lives head && kill -9 "$head") </dev/null >/dev/null 2>&1 &
}

# machines_up: the head and its bridge, but no machine yet.
machines_up() {
  local i started pid
  rm -rf "${state:?}/machines" && mkdir "$state/machines"
  { echo "127.0.0.1 localhost"; echo "$net.254 head"; for i in $(seq "$num_machines"); do echo "$net.$i $prefix$i"; done; } >"$state/hosts"
  setsid unshare -n -u -m -i -p --fork --kill-child --mount-proc -- bash -c "
    hostname head && ip link set lo up && mount --bind \$1/hosts /etc/hosts && mount -t tmpfs tmpfs /dev/shm &&
    ip link add br0 type bridge && ip addr add $net.254/24 dev br0 && ip link set br0 up && : >\$1/machines/head.ready || exit
    $sleeper" machine "$state" head </dev/null >"$state/machines/head.log" 2>&1 &
  started=$!
  disown  # or the shell would speak of its end
  pid=$(first_process $started "$state/machines/head.ready") || { complain "the head's namespaces did not start: $(cat "$state/machines/head.log")"; return 1; }
  echo "$pid" >"$state/machines/head"
  [ -z "${ANYORDER_SLURM_OWNER:-}" ] || watch_owner "$pid" "$ANYORDER_SLURM_OWNER"
}

# machine_boot NAME: nothing if it runs.
machine_boot() {
  local name=$1 i=${1#"$prefix"} started pid
  machine_lives "$name" && return
  rm -f "$state/machines/$name" "$state/machines/$name.ready"; mkdir -p "$state/machines/$name.tmp"
  # Made from inside the head, so that it ends with it.
  (inside head unshare -n -u -m -i -p --fork --kill-child --mount-proc -- bash -c "
    hostname \$2 && ip link set lo up && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs -o mode=1777 tmpfs \$1/machines/\$2.tmp || exit
    for path in \$1 $shared_paths; do
      case \$path in /tmp/*) mkdir -p \"\$1/machines/\$2.tmp/\${path#/tmp/}\" && mount --bind \"\$path\" \"\$1/machines/\$2.tmp/\${path#/tmp/}\" || exit ;; esac
    done
    mount --move \$1/machines/\$2.tmp /tmp && : >\$1/machines/\$2.ready || exit
    $sleeper" machine "$state" "$name") </dev/null >"$state/machines/$name.log" 2>&1 &
  started=$!
  disown
  pid=$(first_process $started "$state/machines/$name.ready") || { complain "machine '$name' did not start: $(cat "$state/machines/$name.log")"; return 1; }
  echo "$pid" >"$state/machines/$name"
  awk '/^NSpid/ { print $(NF-1) }' "/proc/$pid/status" >"$state/machines/$name.inner"  # its number as the head sees it
  (inside head sh -c "ip link del v$i 2>/dev/null
    ip link add v$i type veth peer name eth0 netns $(cat "$state/machines/$name.inner") && ip link set v$i master br0 up") &&
    (inside "$name" sh -c "ip addr add $net.$i/24 dev eth0 && ip link set eth0 up")
}

machine_crash() { machine_lives "$1" && kill -9 "$(machine_pid "$1")"; rm -f "$state/machines/$1"; }
machine_cut() { (inside head ip link set "v${1#"$prefix"}" down); }
machine_heal() { (inside head ip link set "v${1#"$prefix"}" up); }

# Returns when all of it is gone.
machines_down() {
  local pid parent i
  machine_lives head || return 0
  pid=$(machine_pid head)
  parent=$(awk '/^PPid/ { print $2 }' "/proc/$pid/status")  # unshare, which ends a moment later
  kill -9 "$pid"
  for i in $(seq 20000); do
    machine_lives head || grep -qs . "/proc/$parent/cmdline" || { rm -rf "${state:?}/machines"; return 0; }
    sleep 0.01
  done
  complain "process $pid does not end"
}
