#include "launcher/slurm/train_script.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "launcher/slurm/sbatch.h"

namespace anyorder::launcher {
namespace {

constexpr char kTemplate[] = R"script(#!/bin/bash
# Trains a run on @NODES@ nodes with @RANKS@ ranks each, and comes back into the queue until it is finished. The run:
#   @RUN@
# Slurm has its own copy of this file: a change to it reaches only jobs that are submitted later, with
#   sbatch @SCRIPT@
# It was written by
#   @WRITTEN@
#
@HEAD@
anyorder=@ANYORDER@
run=@RUN@

# What your cluster needs before a program runs: modules, a container, variables of MPI or NCCL. Read at each start of the job, so that
# a later change reaches a job that waits.
environment=@ENVIRONMENT@
if [ -r "$environment" ]; then . "$environment"; fi
set -u

# @MPI_REASON@
@MPI@
log() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) job $SLURM_JOB_ID: $*"; }

# USR1 comes from --signal, before the time limit, to this shell alone: it is passed on, and the ranks save and stop. TERM (scancel,
# preemption, requeue, the time limit itself) Slurm sends to every process of the job, so it is not passed on: to the launcher a second
# signal means that nobody may wait for the checkpoint. There is no trap for CONT, which comes with every warning: bash
# then sometimes loses the other signal.
launcher=''
warned=''
early=''
ended=''
caught=''
warn() {
  warned=yes
  caught=yes
  if [ -n "$launcher" ]; then kill -USR1 "$launcher" 2>/dev/null; else early=yes; fi
}
trap warn USR1
trap 'ended=yes; caught=yes' TERM

# --no-kill keeps the job when a node is lost, be it this one: then script and launcher are gone, and the job would do nothing until its time
# limit. So another node watches, and puts it back into the queue. Where no node can stand in for the lost one, it waits there until
#   scontrol update JobId=... NumNodes=... NumTasks=...
# says how many nodes are left; the run goes on with as many ranks as they take.
watch_this_node() {
  srun --overlap --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --exclude="$SLURMD_NODENAME" bash -c '
    while sleep 10; do
      nodes=$(squeue -h -t R -j "$SLURM_JOB_ID" -o %N) && [ -n "$nodes" ] || continue
      names=$(scontrol show hostnames "$nodes") && [ -n "$names" ] || continue
      grep -qx "$1" <<<"$names" || scontrol requeue "$SLURM_JOB_ID"
    done' - "$SLURMD_NODENAME" </dev/null >/dev/null 2>&1
}
[ "$SLURM_JOB_NUM_NODES" -lt 2 ] || while :; do watch_this_node; sleep 10; done &

# The launcher starts the job's steps, again and again if need be: checkpoint service (a task on each node, --overlap), ranks, clean-up.
# It has its own log, train.log in the run directory; srun passes on nothing more once a job is told to end.
log "start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST"
"$anyorder" launch --backend slurm --run-dir "$run" @LAUNCH@ </dev/null &
launcher=$!
[ -z "$early" ] || kill -USR1 "$launcher" 2>/dev/null

# A trap ends `wait` early, and then its status is not the launcher's.
while :; do
  caught=''
  wait "$launcher"
  status=$?
  [ -n "$caught" ] || break
done
# Where a signal and the launcher's end meet, bash may lose the status (-1 or 127), and a launcher that just began may not have
# listened yet (138, 143). Either way the newest checkpoint is whole, and a run that is finished ends at once when it starts again.
if [ -n "$warned$ended" ]; then
  case $status in -* | 127 | 138 | 143) status=75 ;; esac
fi
log "the launcher ended with status $status"

requeue() {
  @REQUEUE@
}
# Kills in a row, each in a line: a launcher that is killed at every start must not come back for ever.
kills=$run/slurm/job-$SLURM_JOB_ID.kills
requeue_a_few_times() {
  [ -z "$ended" ] || exit "$status"
  echo "start $((${SLURM_RESTART_COUNT:-0} + 1)): status $status" >>"$kills"
  if [ "$(wc -l <"$kills")" -gt 3 ]; then
    log "$1 four times in a row; not again. See $kills and $run/train.log"
    exit "$status"
  fi
  requeue "$1"
}
[ "$status" != 74 ] || [ -z "$warned" ] || status=74-while-stopping
case $status in
  75)
    # Stopped with a checkpoint. If Slurm ended the job, it has decided what becomes of it: a preempted one waits again already, and one
    # that was cancelled must not come back. Only the time limit leaves that to us.
    rm -f "$kills"
    [ -z "$ended" ] || [ "$(squeue -h -j "$SLURM_JOB_ID" -o %r)" = TimeLimit ] || exit 75
    requeue "stopped with a checkpoint" ;;
  137 | 143)
    # The launcher was killed: no memory, or Slurm took this start for an old one.
    requeue_a_few_times "the launcher was killed" ;;
  74-while-stopping)
    # The ranks died before they had saved: the run goes on from the checkpoint before.
    status=74
    requeue_a_few_times "the ranks failed while they were stopping" ;;
  0)
    log "finished" ;;
  *)
    # 64 settings, 65 data, 70 a bug, 74 the machine, 93 starts without progress: the last lines above and in train.log say what to do.
    log "not started again by itself; see $run/train.log, then submit it again" ;;
esac
exit "$status"
)script";

constexpr char kRequeue[] = R"script(log "$1; back into the queue"
  scontrol requeue "$SLURM_JOB_ID" && exit 75
  log "scontrol requeue failed; submit the run again to go on"
  exit 75)script";

// Slurm does it for a status that the site names (RequeueExit).
constexpr char kRequeueByStatus[] =
    R"script(log "$1; status @CODE@ puts the job back into the queue"
  exit @CODE@)script";

constexpr char kPmix[] =
    R"script(# Slurm's own order of PMIx fences lets ranks out of MPI_Init before all are in it, and starts on several nodes crash now and then.
export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
)script";

}  // namespace

std::string TrainScriptText(const TrainScript& script) {
  const std::string requeue =
      script.requeue_exit
          ? absl::StrReplaceAll(kRequeueByStatus, {{"@CODE@", absl::StrCat(*script.requeue_exit)}})
          : std::string(kRequeue);
  std::vector<std::string> launch = script.launch;
  return absl::StrReplaceAll(kTemplate, {{"@NODES@", absl::StrCat(script.nodes)},
                                         {"@RANKS@", absl::StrCat(script.ranks_per_node)},
                                         {"@SCRIPT@", ShellQuote(script.script)},
                                         {"@WRITTEN@", script.written},
                                         {"@HEAD@", script.head},
                                         {"@ANYORDER@", ShellQuote(script.anyorder)},
                                         {"@RUN@", ShellQuote(script.run_dir)},
                                         {"@ENVIRONMENT@", ShellQuote(script.environment)},
                                         {"@MPI_REASON@", script.mpi_reason},
                                         {"@MPI@", script.has_pmix ? kPmix : ""},
                                         {"@LAUNCH@", ShellCommand(launch)},
                                         {"@REQUEUE@", requeue}});
}

}  // namespace anyorder::launcher
