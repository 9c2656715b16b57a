#!/usr/bin/env bash
# One case in a Slurm cluster of its own, which is gone afterwards: cases/NAME.sh, a script that may
# use what is defined below.
#
# Usage: case.sh NAME BIN_DIR [WORK_DIR] BIN_DIR: build/bin. Exit 77: skipped, with one line why.
# ANYORDER_SLURM_KEEP=1 keeps the cluster's directory. A case that begins with `# cluster:
# NAME=VALUE...` gets these settings of cluster.sh; with `# cluster: none` it starts clusters
# itself.
set -u
name=$1
bin=$(cd "$2" && pwd) || exit 64
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${3:-$bin/../tests/slurm/work}" && work=$(cd "${3:-$bin/../tests/slurm/work}" && pwd) || exit 74
anyorder=$bin/anyorder
case_file=$here/cases/$name.sh
[ -f "$case_file" ] || { echo "case.sh: no case '$name'; there are: $(cd "$here/cases" && echo *.sh)" >&2; exit 64; }
export ANYORDER_SLURM_OWNER=$$
export ANYORDER_SLURM_SHARE="$bin $work ${ANYORDER_SLURM_SHARE:-}"
export ANYORDER_SLURM_LAB
ANYORDER_SLURM_LAB=$(mktemp -d "${TMPDIR:-/tmp}/anyorder-slurm.XXXXXX") || exit 74
log=$ANYORDER_SLURM_LAB/log

# What CTest sets, for cases started by hand.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp}
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMP_WAIT_POLICY=passive

. "$here/../launcher/checks.sh"
await_pause=10  # a look at Slurm takes a part of a core
cluster() { "$here/cluster.sh" "$@"; }
x() { cluster x "$@"; }
skip() { echo "SKIPPED: $*" >&2; exit 77; }
fail() {
  echo "FAILED: $*" >&2
  for file in ${shown[*]:-}; do [ -f "$file" ] && { echo "--- $file" >&2; tail -n 20 "$file" >&2; }; done
  [ -f "$log/slurmctld.log" ] && { echo "--- slurmctld.log" >&2; tail -n 12 "$log/slurmctld.log" >&2; }
  exit 1
}
shown=()  # files whose ends a failure prints; may be patterns

# job_field JOB FIELD: e.g. JobState, Restarts, NodeList, BatchHost, ExitCode.
job_field() { x scontrol -o show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
job_is() { [ "$(job_field "$1" JobState)" = "$2" ]; }
await_job() { await job_is "$1" "$2"; }  # JOB STATE
submit() { x sbatch --parsable "$@"; }
# expect_same_end RUN: it ended in the state of the undisturbed run, and its ledger proves that no
# sample was used twice or left out.
expect_same_end() {
  [ -n "$(digest "$1")" ] && [ "$(digest "$1")" = "$(cat "$work/reference.digest")" ] || fail "$1 ends in another state than the undisturbed run"
  "$anyorder" inspect "$1" --ledger >$name/audit 2>&1 || fail "inspect --ledger: $(cat $name/audit)"
}
trained() { wc -l <"$1/metrics.jsonl"; }
# last_start FIELD: what the ledger of $run says of its last start: e.g. ranks or nodes.
last_start() { cat "$run"/ledger*.jsonl | grep '"event":"start"' | tail -n 1 | sed "s/.*\"$1\":\(\[[^]]*\]\|[^,]*\).*/\1/"; }
# expect_starts COUNT RANKS NODES: so many, and the last one's ranks and nodes.
expect_starts() {
  local found; found="$(starts "$run") $(last_start ranks) $(last_start nodes)"
  [ "$found" = "$*" ] || fail "starts, ranks and nodes of the last: $found"
}
expect_finished() { await_job $job COMPLETED; expect_same_end "$run"; }
steps=${ANYORDER_SLURM_STEPS:-$(sed -n 's/^steps = //p' "$here/tiny.toml")}
config=$work/$name.toml
sed "s/^steps = .*/steps = $steps/" "$here/tiny.toml" >"$config"
needs_machines() { [ "$(cluster mode)" = netns ] || skip "$name needs nodes with a network and a host name of their own"; }

finish() {
  local status=$?
  trap - EXIT
  cluster down || status=1
  [ -n "${ANYORDER_SLURM_KEEP:-}" ] && echo "kept $ANYORDER_SLURM_LAB" >&2 || rm -rf --one-file-system "$ANYORDER_SLURM_LAB"
  exit $status
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

settings=$(sed -n 's/^# cluster: //p' "$case_file")
if [ "$settings" != none ]; then
  env $settings "$here/cluster.sh" up || exit
fi
cd "$work" && rm -rf "${work:?}/$name" && mkdir "$name" || exit 74
. "$case_file"
