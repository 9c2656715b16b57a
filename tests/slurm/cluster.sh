#!/usr/bin/env bash
# A private Slurm cluster on this machine: real slurmctld, slurmd and munge, several nodes, no
# systemd. README.md tells what it is like.
#
# Usage: cluster.sh up                      starts it in $ANYORDER_SLURM_LAB, an empty or new
#                                           directory; 77 and one line if that is impossible here
#        cluster.sh x COMMAND...            runs a command on the head (sbatch, srun, anyorder ...)
#        cluster.sh nx NODE COMMAND...      ... on a node (n1, n2, ...)
#        cluster.sh crash NODE | boot NODE  power off (kill -9 of everything on it) | on
#        cluster.sh cut NODE | heal NODE    unplug the network | plug it in again (netns only)
#        cluster.sh mode                    netns or ports
#        cluster.sh down                    ends all processes and mounts; the directory stays,
#                                           with logs in log/
#
# Settings of `up`, in the environment:
#   ANYORDER_SLURM_MODE          netns: a node has its own host name, address, /dev/shm, /tmp and
#                                processes; ports: nodes share all of them; auto (default): netns
#                                where it is possible
#   ANYORDER_SLURM_NODES=4
#   ANYORDER_SLURM_GPUS=8        of a node, pretended; 0: none
#   ANYORDER_SLURM_REQUEUE_EXIT  exit status that Slurm requeues by itself (default: none)
#   ANYORDER_SLURM_TIMEOUT=5     SlurmdTimeout, seconds until a silent node is DOWN; four times as
#                                long with Slurm 23.11 to 24.11 (write_conf says why)
#   ANYORDER_SLURM_SHARE         more directories of /tmp that all nodes share (with
#                                $ANYORDER_SLURM_LAB and this repository), by blanks
#   ANYORDER_SLURM_OWNER         a process; when it is gone the cluster ends
# Partitions: low (default, may be preempted and requeued), high (preempts low).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${ANYORDER_SLURM_LAB:?set it to a directory of your own, e.g. ANYORDER_SLURM_LAB=\$(mktemp -d)}
prefix=n
. "$here/machines.sh"
shared_paths="$(cd "$here/../.." && pwd) ${ANYORDER_SLURM_SHARE:-}"

skip() { echo "SKIPPED: no Slurm cluster here: $*" >&2; exit 77; }
slurm_environment=(SLURM_CONF="$state/slurm.conf" ANYORDER_SLURM_MARK="$state")
client_environment=()

# What every process of the cluster has in its environment where no namespace holds them together.
marked_processes() { grep -lzsxF -- "$1" /proc/[0-9]*/environ | cut -d/ -f3; }

# Where a command of ours runs: in the head's namespaces, or simply here.
on_head() { if [ "$mode" = netns ]; then inside head env "${client_environment[@]}" "$@"; else exec env "${client_environment[@]}" "$@"; fi; }
# A daemon gets a clean environment: what srun or CTest set for us must not reach jobs that way.
daemon() {
  local machine=$1; shift
  local -a clean=(env -i PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8 "${slurm_environment[@]}")
  if [ "$mode" = netns ]; then (inside "$machine" "${clean[@]}" "$@"); else "${clean[@]}" "$@"; fi
}

# free_ports COUNT: the first of COUNT ports in a row that nobody listens on.
free_ports() {
  local base try port
  for try in $(seq 50); do
    base=$((20000 + RANDOM % 10000))
    for port in $(seq $base $((base + $1 - 1))); do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue 2
    done
    echo $base && return
  done
  return 1
}

write_conf() {
  local gres="" nodes control bind base user silence=${ANYORDER_SLURM_TIMEOUT:-5}
  user=$(id -un)
  if [ "$gpus" -gt 0 ]; then
    # Slurm wants character devices; any will do. Only root can make them: without there are no
    # GPUs.
    mkdir -p "$state/gpu" && for i in $(seq 0 $((gpus - 1))); do mknod "$state/gpu/nvidia$i" c 1 3 2>/dev/null || gpus=0; done
  fi
  if [ "$gpus" -gt 0 ]; then
    gres="Gres=gpu:$gpus"
    echo "NodeName=n[1-$num_machines] Name=gpu File=$state/gpu/nvidia[0-$((gpus - 1))]" >"$state/gres.conf"
  fi
  if [ "$mode" = netns ]; then
    control="SlurmctldHost=head($net.254)"
    bind="CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"
    nodes="NodeName=n[1-$num_machines] NodeAddr=$net.[1-$num_machines]"
    tmp=/tmp
  else
    base=$(free_ports $((num_machines + 1))) || skip "no free ports"
    control="SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$base"
    # Not on all addresses. Where the machine has no other than loopback Slurm's resolver finds
    # nothing that way.
    bind="CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"
    nodes="NodeName=n[1-$num_machines] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + num_machines))]"
    tmp=$state/tmp/%n
  fi
  # Slurm 23.11 to 24.11.5 can take living nodes for dead when a round of pings lasts longer than
  # two thirds of SlurmdTimeout: its ticket 22632.
  case $(slurmd -V) in *" 23.11."*|*" 24."*) silence=$((silence * 4)) ;; esac
  # cred_expire is also how long a requeued job must wait; below 5 it silently becomes 120.
  # config_overrides: nodes may claim more cores than there are. TmpFS: PMIx names its directory
  # there after the job alone.
  cat >"$state/slurm.conf" <<END
ClusterName=anyorder
$control
$bind
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$state/munge/socket,cred_expire=5
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/spool/%n
TmpFS=$tmp
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$state/log/jobs.txt
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,bf_window=60
PriorityType=priority/basic
CompleteWait=0
KillWait=5
MinJobAge=600
MessageTimeout=3
TCPTimeout=1
SlurmdTimeout=$silence
SlurmctldTimeout=30
BatchStartTimeout=10
UnkillableStepTimeout=15
InactiveLimit=0
ReturnToService=2
JobRequeue=1
${ANYORDER_SLURM_REQUEUE_EXIT:+RequeueExit=$ANYORDER_SLURM_REQUEUE_EXIT}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
$nodes CPUs=4 RealMemory=4000 $gres State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE GraceTime=5 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
END
  # Slurm's default fence lets ranks out of MPI_Init too early: with three nodes and several ranks
  # on each, 5 to 27 % of the starts crashed in Open MPI's tcp transport; none of 480 with "ring".
  echo "PMIxCollFence=ring" >"$state/mpi.conf"
}

boot() {
  mkdir -p "$state/spool/$1" "$state/tmp/$1"
  [ "$mode" = ports ] || machine_boot "$1" || return
  daemon "$1" slurmd -N "$1"
}

crash() {
  if [ "$mode" = netns ]; then machine_crash "$1"; return; fi
  # slurmd first: it must not report the death of the rest.
  kill -9 "$(cat "$state/slurmd.$1.pid")" $(comm -12 <(marked_processes "SLURMD_NODENAME=$1" | sort) <(marked_processes "ANYORDER_SLURM_MARK=$state" | sort)) 2>/dev/null
  return 0
}

down() {
  local -a left
  if [ "$mode" = netns ]; then machines_down || return; else
    # Marked processes may fork while we look: until none is left.
    for try in $(seq 1000); do
      mapfile -t left < <(marked_processes "ANYORDER_SLURM_MARK=$state")
      for i in "${!left[@]}"; do grep -q '^State:.Z' "/proc/${left[$i]}/status" 2>/dev/null && unset "left[$i]"; done
      [ ${#left[@]} -eq 0 ] && break
      kill -9 "${left[@]}" 2>/dev/null
      sleep 0.05
    done
    [ ${#left[@]} -eq 0 ] || { complain "these processes do not end: ${left[*]}"; return 1; }
  fi
  rm -f "$state"/*.pid "$state/mode"
}

set_client_environment() {
  if [ "$mode" = netns ]; then
    client_environment=(-u TMPDIR "${slurm_environment[@]}")  # nodes have their own /tmp
  else
    # Ranks of different nodes would take each other's shared memory.
    client_environment=("${slurm_environment[@]}" TMPDIR="$state/tmp" OMPI_MCA_btl=self,tcp)
  fi
}

idle_nodes() { (on_head sinfo -h -N -p low -t idle -o %N 2>/dev/null) | sort -u | wc -l; }

up() {
  local why tool
  for tool in slurmctld slurmd munged; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || skip "'$tool' is not installed (launcher/install_packages.sh tests)"
  done
  mode=${ANYORDER_SLURM_MODE:-auto}
  if [ "$mode" != ports ]; then
    why=$(machines_impossible)
    [ -z "$why" ] || [ "$mode" = auto ] || skip "$why"
    if [ -z "$why" ]; then mode=netns; else mode=ports; echo "nodes share one name and address, because $why" >&2; fi
  fi
  mkdir -p "$state" && state=$(cd "$state" && pwd) || exit 74
  [ -z "$(ls -A "$state")" ] || { complain "'$state' is not empty; name a new directory"; exit 64; }
  chmod 755 "$state"
  mkdir -p "$state"/{ctld,spool,tmp,log,munge,shared}
  echo "$mode" >"$state/mode"
  trap 'complain "did not start; logs are in $state/log"; down' EXIT
  if [ "$mode" = netns ]; then machines_up || exit 70; fi
  set_client_environment
  write_conf
  head -c 1024 /dev/urandom >"$state/munge/key" && chmod 600 "$state/munge/key"
  daemon head munged --force --num-threads=2 --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
    --log-file="$state/log/munged.log" --seed-file="$state/munge/seed" 2>"$state/log/munged.err" || { cat "$state/log/munged.err" >&2; exit 70; }
  daemon head slurmctld -i -c || exit 70
  for i in $(seq "$num_machines"); do boot "n$i" || exit 70; done
  for i in $(seq 4000); do
    [ "$(idle_nodes)" -eq "$num_machines" ] && { trap - EXIT; return 0; }
    sleep 0.05
  done
  complain "only $(idle_nodes) of $num_machines nodes came up: $(grep -h -i 'error\|fatal' "$state"/log/slurm*.log | tail -n 3)"
  exit 70
}

num_machines=${ANYORDER_SLURM_NODES:-4}
gpus=${ANYORDER_SLURM_GPUS:-8}
command=${1:-}
[ $# -gt 0 ] && shift
mode=$(cat "$state/mode" 2>/dev/null)
case $command in
  up) [ -z "$mode" ] || { complain "a cluster runs in '$state' already"; exit 64; }; up; exit ;;
  down) [ -z "$mode" ] || down; exit ;;
  x | nx | crash | boot | cut | heal | mode) [ -n "$mode" ] || { complain "no cluster runs in '$state'; start it with: cluster.sh up"; exit 64; } ;;
  *) sed -n '2,/^set -u/{/^set -u/!p}' "$0" >&2; exit 64 ;;
esac
set_client_environment
case $command in
  x) on_head "$@" ;;
  nx)
    node=$1; shift
    if [ "$mode" = netns ]; then inside "$node" env "${client_environment[@]}" "$@"; else exec env "${client_environment[@]}" SLURMD_NODENAME="$node" "$@"; fi ;;
  crash) crash "$1" ;;
  boot) boot "$1" ;;
  cut | heal) [ "$mode" = netns ] || skip "nodes have no network of their own to $command"; "machine_$command" "$1" ;;
  mode) echo "$mode" ;;
esac
