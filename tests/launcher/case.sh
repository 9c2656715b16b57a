#!/usr/bin/env bash
# One end-to-end case: real programs, real signals, a tiny model on generated text.
#
# Usage: case.sh BIN_DIR WORK_DIR CASE `prepare` first: it makes the dataset and the undisturbed run
# that others compare with.
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "$3"
. "$here/tiny_run.sh"

# recovers WHAT TEXT: after that the job tells TEXT, starts again and ends with the same run.
recovers() {
  wait $job; expect_status $? 0 "after $1"
  expect_text "$2" $name/log
  expect_text "starting again" $name/log
  expect_same_run $name/run
}
# A dead process whose new parent has not asked for it yet (Z) is none any more.
is_gone() { ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null; }

case $name in
prepare)
  rm -rf shards other-shards reference reference.*
  python3 "$here/make_text.py" 1 >corpus.txt && python3 "$here/make_text.py" 2 >other.txt
  prep --input corpus.txt --output shards --vocab-size 300
  prep --input other.txt --output other-shards --vocab shards/spiece.model
  launch "$work/reference" --ranks 1 || fail "the undisturbed run"
  digest reference >reference.digest && losses reference >reference.losses
  [ "$(wc -l <reference.losses)" -eq $steps ] || fail "metrics.jsonl does not have one line a step" ;;

ranks)
  for ranks in 2 3 4; do
    launch "$name/run$ranks" --ranks $ranks >"$name/log" 2>&1; expect_status $? 0 "$ranks ranks"
    expect_same_run "$name/run$ranks"
    "$anyorder" inspect "$name/run$ranks/checkpoints/$last" --json >"$name/json"
    expect_text "\"world_size\": $ranks," "$name/json"
    # What a later start on other machines is held against.
    expect_text "\"ranks\": $ranks$" "$name/run$ranks/.launch/nodes.json"
  done ;;

killed_rank)
  start $name/run --ranks 2
  kill -9 "$(rank_pids $name/run | tail -n 1)"
  recovers "a killed rank" "the ranks ended with " ;;

frozen_rank)
  # One rank is stopped, as by a debugger or a sick machine: it is named, killed and started again.
  start $name/run --ranks 3 --set dist.hang_report_seconds=2 --set dist.collective_timeout_seconds=5
  frozen=$(rank_pids $name/run | tail -n 1)
  kill -STOP "$frozen"
  recovers "a stopped rank" "collective [0-9]* ([A-Za-z]*) has run for .* in phase '.*'; [12] of 3 ranks waits\\? in it; missing: .*rank [0-9] on [^ ]* (process $frozen): in phase '.*', [a-z]* collective [0-9]* .*stopped or lost"
  is_gone $frozen || fail "the stopped rank still lives" ;;

frozen_run)
  # No rank is left that waits for it.
  start $name/run --ranks 1 --set dist.hang_report_seconds=1 --set dist.collective_timeout_seconds=3
  frozen=$(rank_pids $name/run)
  kill -STOP $frozen
  recovers "a stopped run" "rank 0 on [^ ]* (process $frozen): in phase 'step .*hangs" ;;

frozen_service)
  # A checkpoint service that is stopped would keep ranks from saving for ever: it is replaced.
  start $name/run --ranks 2 --set health.contact_timeout_seconds=4
  frozen=$(service_pids $name/run)
  kill -STOP $frozen
  recovers "a stopped service" "nothing heard from the checkpoint service on .*: it is stopped, or"
  is_gone $frozen || fail "the stopped service still lives"
  # Nor does one that a killed launcher leaves behind keep the run from going on.
  start $name/second --ranks 2
  kill -STOP $(service_pids $name/second)
  kill -9 $job
  wait $job 2>/dev/null
  launch "$work/$name/second" --resume required >>$name/log 2>&1; expect_status $? 0 "after a stopped service and a killed launcher"
  expect_same_run $name/second ;;

killed_all)
  start $name/run --ranks 2
  kill_all "$work/$name/run " $job
  # Another number of ranks goes on with the same run.
  launch "$work/$name/run" --ranks 3 --resume required >>$name/log 2>&1; expect_status $? 0 "resuming"
  expect_text "3 ranks.*resuming after step" $name/log
  expect_same_run $name/run
  # Offline: nothing twice, nothing left out, and the parts of the time are its whole.
  audit() { "$anyorder" inspect "$@" --ledger --json >$name/json 2>$name/verdict; }
  audit $name/run; expect_status $? 0 "inspect --ledger: $(cat $name/verdict)"
  python3 - $name/json $steps <<'END' || fail "the audit: $(cat $name/json)"
import json, sys
audit, steps = json.load(open(sys.argv[1])), int(sys.argv[2])
assert audit["steps"] == steps and audit["duplicates"] == audit["omissions"] == 0 and not audit["problems"]
assert audit["compared_with_plan"] == steps + audit["redone_steps"] and audit["compared_with_redone"] == audit["redone_steps"]
parts = [part["seconds"] for part in audit["time"].values()]
assert min(parts) >= 0 and abs(sum(parts) - audit["wall_seconds"]) <= 0.01 * audit["wall_seconds"]
assert audit["time"]["restart"]["seconds"] > 0 and len(audit["attempts"]) == 2
END
  # A dataset that was moved is found where --data says; another one is none.
  sed -i "s|^shards = .*|shards = \"$work/$name/gone\"|" $name/run/config.toml
  audit $name/run --data shards; expect_status $? 0 "a dataset that was moved"
  audit $name/run --data other-shards; expect_status $? 65 "another dataset" ;;

killed_launcher)
  start $name/run --ranks 2
  scratch=$(tr '\0' '\n' <"/proc/$(mpirun_pids $name/run | head -n 1)/environ" | sed -n 's/^\(OMPI_MCA_orte_tmpdir_base\|PRTE_MCA_prte_local_tmpdir_base\|OMPI_MCA_btl_vader_backing_directory\)=//p')
  [ -n "$scratch" ] || fail "mpirun has no directory of its own"
  kill -9 $job; wait $job 2>/dev/null
  no_ranks() { [ -z "$(rank_pids $name/run)$(mpirun_pids $name/run)" ]; }
  await no_ranks
  launch "$work/$name/run" --ranks 2 --resume required >>$name/log 2>&1; expect_status $? 0 "resuming"
  for directory in $scratch; do [ ! -e "$directory" ] || fail "$directory stays"; done
  expect_same_run $name/run ;;

killed_service)
  start $name/run --ranks 2
  kill -9 $(service_pids $name/run)
  recovers "a killed service" "checkpoint service ended" ;;

stopped)
  start $name/run --ranks 2
  kill -TERM $job
  wait $job; expect_status $? 75 "after SIGTERM"
  expect_saved_where_it_stopped $name/run
  expect_text '"event":"stop".*"exit_status":75' $name/run/ledger.jsonl
  expect_text '"event":"exit".*"exit_status":75,"detail":"signal SIGTERM"' $name/run/ledger.jsonl
  expect_text "stopped; to resume: $anyorder launch .*$name/run$" $name/log
  "$anyorder" status $name/run >$name/status 2>&1; expect_text "^resume *$anyorder launch $name/run$" $name/status
  launch "$work/$name/run" --ranks 2 >>$name/log 2>&1; expect_status $? 0 "going on"
  expect_text "dataset: '$work/shards', [0-9]* tokens, vocabulary [0-9]*" $name/log
  expect_text "finished; curves as a page: $anyorder report .*$name/run; weights for PyTorch: " $name/log
  expect_nothing_redone $name/run
  expect_same_run $name/run ;;

crashed_stop)
  # A rank crashes instead of stopping: that is no stop with a checkpoint, and nobody may believe
  # so.
  start $name/run --ranks 2
  victim=$(rank_pids $name/run | head -n 1)
  kill -STOP "$victim"  # until all wishes are there
  kill -TERM $job
  await grep -q "stopping: the ranks save a checkpoint first" $name/log
  # No signal that a handler of MPI could meet first, while other threads still finish the save.
  kill -ILL "$victim"; kill -CONT "$victim"
  wait $job; expect_status $? 74 "a crash while stopping"
  expect_text "the ranks ended with status [0-9]* while they were stopping; steps since the last checkpoint are lost" $name/log
  [ "$(starts $name/run)" -eq 1 ] || fail "started again although it was to stop"
  launch "$work/$name/run" --ranks 2 >>$name/log 2>&1; expect_status $? 0 "going on"
  expect_same_run $name/run ;;

damaged_data)
  cp -r shards $name/shards
  # A whole chunk of tokens; every lane of this small dataset reads it.
  python3 - $name/shards/shard-00000.h5 shards/shard-00000.h5 <<'PYTHON'
import sys
data = bytearray(open(sys.argv[2], "rb").read())
data[len(data) // 3] ^= 4
open(sys.argv[1], "wb").write(data)
PYTHON
  launch "$name/run" --ranks 2 --set data.shards="$work/$name/shards" >$name/log 2>&1; expect_status $? 65 "damaged data"
  expect_text "shard-00000.h5" $name/log
  [ "$(starts $name/run)" -eq 1 ] || fail "started again on damaged data"
  expect_text "chunk" $name/log ;;

full_disk)
  [ "$(id -u)" -eq 0 ] && mkdir $name/disk && mount -t tmpfs -o size=24m tmpfs $name/disk 2>/dev/null || {
    echo "SKIPPED: $name needs root and a tmpfs"; exit 77; }
  trap 'umount "$work/$name/disk"' EXIT
  start $name/disk/run --ranks 2 --set train.steps=1000000 --set checkpoint.max_failed_saves=2
  # Room for the logs, none for another checkpoint.
  free=$(($(stat -f -c '%a * %S' $name/disk) / 1024))
  dd if=/dev/zero of=$name/disk/ballast bs=1K count=$((free - 256)) 2>/dev/null
  wait $job; expect_status $? 74 "a full disk"
  expect_text "max_failed_saves.*launch again" $name/log
  [ "$(starts $name/disk/run)" -eq 1 ] || fail "started again on a full disk"
  rm $name/disk/ballast
  "$anyorder" inspect $name/disk/run/CURRENT --verify >/dev/null 2>&1 || "$anyorder" inspect $name/disk/run --verify >$name/inspect 2>&1 || fail "the old checkpoint is damaged"
  compose "$work/$name/disk/run" --ranks 2 --set train.steps=1000000 --resume required
  "${command[@]}" >$name/again 2>&1 & job=$!
  await grep -q "resuming after step" $name/again
  kill -TERM $job; wait $job; expect_status $? 75 "going on with room" ;;

long_path)
  long=$name/$(printf 'a-run-directory-with-a-long-name-%.0s' 1 2 3 4 5)
  launch "$work/$long" --ranks 2 --set train.steps=5 >$name/log 2>&1; expect_status $? 0 "a path that no socket address holds"
  expect_text "COMMITTED" $name/log ;;

two_users)
  # Another user of the machine takes names first, and tries what he can while a run runs.
  stranger() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@" 2>/dev/null; }
  [ "$(id -u)" -eq 0 ] && stranger true || { echo "SKIPPED: $name needs root, to act as another user"; exit 77; }
  place=$(mktemp -d /tmp/two-users.XXXXXX) && chmod 755 "$place" && mkdir -m 1777 "$place/tmp" || fail "a place for both users"
  shown=$place/$(printf 'a-run-directory-with-a-long-name-%.0s' 1 2 3 4 5) closed=$place/closed
  # Names that follow from user, run directory and node.
  foreseen=("/tmp/anyorder-$(id -u)")  # where /tmp is open to him
  for parent in "$place/tmp" /dev/shm; do
    foreseen+=("$parent/anyorder-$(id -u)-$(PYTHONPATH=$here python3 -c '
import sys
from make_run import crc32c
print(".".join("%08x" % crc32c(word.encode()) for word in sys.argv[1:]))' "$shown" local)")
  done
  trap 'rm -rf "$place" "${foreseen[@]:2}"; stranger rmdir "${foreseen[@]}"' EXIT
  for path in "${foreseen[@]}"; do ! stranger test -w "${path%/*}" || stranger mkdir "$path" || [ -d "$path" ] || fail "$path"; done
  umask 022
  compose "$shown" --ranks 2 --set train.steps=1000000
  TMPDIR=$place/tmp "${command[@]}" >$name/log 2>&1 & job=$!
  await has_commit "$shown"
  # By default he may read, but neither talk to the run nor write anywhere.
  stranger grep -q loss "$shown/metrics.jsonl" || fail "with umask 022 everybody may read"
  connects() {
    (cd "$1" && stranger python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$2")
  }
  (cd "$shown/.ckptd" && python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("node00.sock")') || fail "no socket"
  ! connects "$shown" .ckptd/node00.sock || fail "he reaches the service's socket"
  ! stranger cat "$shown"/.launch/health-1 >/dev/null || fail "he reads the launcher's token"
  scratch=$(cat "$shown"/.launch/scratch.*)
  [ -n "$scratch" ] || fail "the run has no directory on its node"
  for path in $scratch; do
    [ -d "$path" ] || fail "$path is not there"
    ! stranger ls "$path" >/dev/null || fail "he sees what is in $path"
    ! stranger touch "$path/planted" || fail "he writes into $path"
    ! stranger mv "$path" "$path.moved" || fail "he moves $path away"
  done
  kill -TERM $job; wait $job; expect_status $? 75 "a run beside another user"
  for path in $scratch; do [ ! -e "$path" ] || fail "$path stays"; done
  [ -z "$(ls "$shown"/.launch/scratch.* 2>/dev/null)" ] || fail "the record of removed directories stays"
  # Asked to, the run keeps everything to itself, also in a directory that was open.
  mkdir -m 755 "$closed"
  launch "$closed" --ranks 2 --set train.steps=20 --set run.private=true >>$name/log 2>&1; expect_status $? 0 "a private run"
  open=$(find "$closed" ! -type l -perm /077) && [ -z "$open" ] || fail "others may use: $open"
  ! stranger ls "$closed" >/dev/null || fail "he lists a private run"
  "$anyorder" report --run-dir "$closed" --output "$place/report.html" >>$name/log 2>&1; expect_status $? 0 "report"
  ! stranger cat "$place/report.html" >/dev/null || fail "he reads a private run's report" ;;

refused)
  # A second launch on a live run directory, by name of the owner.
  start $name/run --ranks 1
  expect_refused 64 "process $job" launch "$work/$name/run"
  wait $job; expect_status $? 0 "the first launch"
  expect_refused 64 "" launch "$name/run" --resume never
  expect_refused 64 "is not a run directory" "$anyorder" status --run-dir "$here"
  expect_refused 64 "model.ffn_dim" launch "$name/run" --set model.ffn_dim=96
  cp $name/run/config.toml $name/frozen
  expect_refused 65 "trained on dataset" launch "$name/run" --set data.shards="$work/other-shards"
  cmp $name/frozen $name/run/config.toml || fail "a refused launch changed config.toml"
  # Of a run whose configuration is gone the checkpoints say what it is.
  rm $name/run/config.toml
  expect_refused_in_a_line 65 "config.toml' is missing, and .*step-.*model.ffn_dim" launch "$name/run" --set model.ffn_dim=96
  [ ! -e $name/run/config.toml ] || fail "a refused launch wrote config.toml"
  cp $name/frozen $name/run/config.toml
  # A part of a dataset that is not there is bad data, not the machine's fault; no rank is started
  # for it.
  cp -r shards $name/part && rm $name/part/shards.idx
  expect_refused 65 "shards.idx' is missing" launch "$name/new" --set data.shards="$work/$name/part"
  mkdir $name/papers && touch $name/papers/thesis.tex
  expect_refused 64 "holds 'thesis.tex' and no run" launch "$name/papers"
  [ "$(ls -A $name/papers)" = thesis.tex ] || fail "something was written beside other files"
  (cd $name && launch "" >empty 2>&1); expect_status $? 64 "an empty --run-dir"; [ ! -e /config.toml ] || fail "wrote into /"
  mkdir $name/bare
  for command in "prep --input $work/corpus.txt --output" "export --run-dir $work/reference --output" "status --run-dir" "inspect"; do
    (cd $name/bare && "$anyorder" $command "" >../empty 2>&1); expect_status $? 64 "$command with an empty path"
    expect_text "not be empty" $name/empty
  done
  [ -z "$(ls -A $name/bare)" ] || fail "something was written for an empty path"
  expect_refused 64 "" launch "$name/new" --ranks 9
  expect_refused 65 "no committed checkpoint" launch "$name/new" --resume required
  expect_refused 64 "nowhere' does not exist; .*anyorder prep" launch "$name/new" --set data.shards=nowhere
  CUDA_VISIBLE_DEVICES="" expect_refused_in_a_line 64 'use train.device = "cpu"' \
    launch "$name/new" --set train.device=cuda
  TMPDIR=$work/$name/nowhere expect_refused_in_a_line 64 "'.*nowhere', cannot be used .*set TMPDIR" launch "$name/new"
  expect_refused 64 "ranks: must be a whole number from 1 to" launch "$name/new" --ranks 0
  expect_refused 64 "use --ranks-per-node" launch "$name/new" --backend slurm --ranks 2
  expect_refused 64 "no srun in PATH" \
    env SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1 PATH=$work/$name/bare "$anyorder" launch --backend slurm \
    --config "$here/tiny.toml" --set data.shards="$work/shards" --run-dir $name/new
  [ "$(grep -o anyorder: $name/err | wc -l)" = 1 ] || fail "the program's name twice: $(cat $name/err)"
  ! grep clean-node $name/out $name/err || fail "an internal subcommand is listed"
  [ ! -e $name/new ] || fail "something was written"
  expect_same_run $name/run ;;

schedule)
  launch "$name/run" --set train.steps=20 >$name/log 2>&1; expect_status $? 0 "a short run"
  cp $name/run/config.toml $name/frozen
  # Longer and slower than it was started is another schedule, and needs a word.
  change=(--set train.steps=30 --set optimizer.learning_rate=0.001)
  expect_refused 64 "\(train.steps = 20 \|learning_rate\).*--allow-schedule-change" \
    launch "$name/run" "${change[@]}"
  expect_refused 64 "train.global_batch_size" \
    launch "$name/run" "${change[@]}" --set train.global_batch_size=16 --allow-schedule-change
  cmp $name/frozen $name/run/config.toml || fail "a refused launch changed config.toml"
  launch "$name/run" "${change[@]}" --allow-schedule-change >>$name/log 2>&1; expect_status $? 0 "an allowed change"
  expect_text '"event":"schedule".*learning_rate = 0.003 -> .*train.steps = 20 -> train.steps = 30' $name/run/ledger.jsonl
  expect_text "resuming after step 20 of 30" $name/log
  expect_text "schedule changes: .*; learning rate of step 21: [0-9.e-]* -> [0-9.e-]*$" $name/log
  [ "$(wc -l <$name/run/metrics.jsonl)" -eq 30 ] || fail "not 30 steps"
  # Once allowed it is the run's schedule.
  "$anyorder" launch --run-dir $name/run >>$name/log 2>&1; expect_status $? 0 "the same again"
  [ "$(grep -c '"event":"schedule"' $name/run/ledger.jsonl)" -eq 1 ] || fail "recorded twice"
  # An end that has passed already is none; one that is reached needs nothing.
  cp $name/run/config.toml $name/frozen
  expect_refused 64 "train.steps is 25, but run '.*' has trained 30 steps already; name at least 30" \
    launch "$name/run" "${change[@]}" --set train.steps=25 --allow-schedule-change
  cmp $name/frozen $name/run/config.toml || fail "a refused launch changed config.toml"
  launch "$name/run" "${change[@]}" >>$name/log 2>&1; expect_status $? 0 "a run that is finished"
  expect_text "resuming after step 30 of 30; the run is finished already" $name/log
  "$anyorder" status --run-dir $name/run >$name/status 2>&1; expect_text "finished" $name/status
  # Checkpoints of before the change are the run's, too.
  "$anyorder" export --run-dir $name/run --step 20 --output $name/hf >$name/export 2>&1; expect_status $? 0 "export of an older schedule"
  evaluate $name/run --step 20 --data other-shards >$name/eval 2>&1; expect_status $? 0 "eval of an older schedule"
  # Edited by hand, nobody allowed it.
  sed -i 's/^steps = 30/steps = 40/' $name/run/config.toml
  expect_refused 65 "belongs to another configuration" "$anyorder" launch --run-dir $name/run ;;

failed_start)
  # Nothing is written for sizes that never fit, and what is recommended instead works.
  too_many() { expect_refused_in_a_line "$1" "$2" launch "$name/none" "${@:3}"; [ ! -e $name/none ] || fail "'$*' wrote something"; }
  too_many 65 "data.shards: dataset of [0-9]* tokens is too short for 2048 lanes of .*, or --set train.global_batch_size=[0-9]*$" --set train.global_batch_size=2048
  read -ra advice <<<"$(sed 's/.*, or \(--set .*\)$/\1/' $name/err)"
  launch "$name/advised" "${advice[@]}" --set train.steps=1 >$name/log 2>&1; expect_status $? 0 "the batch that was recommended: ${advice[*]}"
  expect_text "warning: optimizer.warmup_steps is 2 of 1 steps" $name/log
  too_many 74 "needs at least .* of memory (.*no batch size is small enough" --set model.model_dim=1048576
  too_many 74 "checkpoints that are kept at once need" --set checkpoint.keep_last=1000000000000 --set checkpoint.every=1 --set train.steps=1000000000000
  too_many 64 "model.num_layers is 1000000000000 but must be" --set model.num_layers=1000000000000
  # Nor for an mpirun that cannot start these ranks.
  mkdir $name/mpi
  printf '#!/bin/sh\n[ "$1" = --version ] && echo "${FAKE_MPIRUN:-$(%s --version)}"; exit 0\n' "$(command -v mpirun)" >$name/mpi/mpirun
  chmod +x $name/mpi/mpirun
  path=$PATH; PATH="$work/$name/mpi:$PATH"
  FAKE_MPIRUN="mpirun (Open MPI) 4.0.7" too_many 64 "mpirun in PATH is Open MPI 4.0.7, and 4.1 or newer is needed"
  FAKE_MPIRUN="mpirun (Open MPI) 9.0.0" too_many 64 "mpirun in PATH is Open MPI 9.0.0, and starts no ranks of the library .* (Open MPI v[45]"
  FAKE_MPIRUN="HYDRA build details:" too_many 64 "mpirun in PATH is no Open MPI ('HYDRA build details:')"
  # One that ends well although no rank has finished: Open MPI 5's does where it lost a machine.
  launch "$name/lost" --ranks 2 >$name/log 2>&1; expect_status $? 93 "an mpirun that ends too early"
  expect_text "ended with status 0, but the ranks have not finished" $name/log
  PATH=$path
  # A start that reads its configuration writes nothing either, and ends when it is asked to.
  mkfifo $name/pipe
  "$anyorder" launch --config $name/pipe --run-dir $name/none >$name/log 2>&1 & job=$!
  exec 9>$name/pipe  # comes back when it is read from
  kill -TERM $job; wait $job; expect_status $? 75 "SIGTERM while the configuration is read"
  expect_text "stopped while reading the configuration.*nothing was started or written" $name/log
  exec 9>&-
  [ ! -e $name/none ] || fail "a stopped start wrote something"
  # Starts that fail before their first step settle nothing: another batch, and other text.
  mkdir -p $name/run && cp reference/config.toml $name/run
  ln -s "$(printf 'a%.0s' {1..300})" $name/run/metrics.jsonl  # no file system has names as long
  launch "$name/run" --ranks 2 >$name/log 2>&1; expect_status $? 93 "a crash loop"
  expect_text "3 starts in a row.*metrics.jsonl" $name/log
  [ "$(starts $name/run)" -eq 3 ] || fail "not three starts"
  expect_text '"event":"stop","time":[^,]*,"attempt":3,"exit_status":74' $name/run/ledger.jsonl
  rm $name/run/metrics.jsonl
  change=(--set train.global_batch_size=4 --set train.steps=30 --set data.shards="$work/other-shards")
  launch "$work/$name/run" "${change[@]}" >$name/log 2>&1; expect_status $? 0 "another configuration"
  expect_text "nothing was trained with the configuration before, which this one replaces: .*train.global_batch_size = 8 -> train.global_batch_size = 4" $name/log
  expect_text '"event":"reconfigured".*train.steps = 300 -> train.steps = 30' $name/run/ledger.jsonl
  # Ranks are those of the last start.
  expect_text "2 ranks, as the last start had" $name/log
  expect_text "2 ranks, [0-9]* threads\? each" $name/log
  "$anyorder" inspect $name/run --ledger >$name/audit 2>&1; expect_status $? 0 "the audit: $(cat $name/audit)"
  # Now it is trained.
  expect_refused 64 "was started with train.global_batch_size = 4" launch "$name/run" "${change[@]}" --set train.global_batch_size=8
  expect_refused 65 "trained on dataset" launch "$name/run" "${change[@]}" --set data.shards="$work/shards"
  # Memory that a rank does not get is missing in the next start, too.
  (ulimit -v 1500000; launch "$name/large" --set model.ffn_dim=131072 >$name/log 2>&1); expect_status $? 74 "a model that does not fit: $(tail -n 3 $name/log)"
  [ "$(starts $name/large)" -eq 1 ] || fail "started again without memory" ;;

# A rate that no step survives: not finished, said so everywhere, and nothing that was good is lost.
diverged)
  wild=(--set train.steps=12 --set optimizer.learning_rate=1e10 --set checkpoint.every=1)
  launch "$name/run" "${wild[@]}" --ranks 2 >$name/log 2>&1; expect_status $? 93 "a run that diverged"
  expect_text "the run diverged: steps [0-9]* to 12 were skipped" $name/log
  expect_text "step [0-9]* COMMITTED.*; its weights are those of step [0-9]*" $name/log
  expect_text "loss nan" $name/log
  # Of a long row of equal warnings few are printed.
  [ "$(grep -c 'no update' $name/log)" -le 5 ] || fail "$(grep -c 'no update' $name/log) warnings of $((12 - trained))"
  ! grep -q -- "-nan" $name/log || fail "a NaN has a sign: $(grep -m1 -- -nan $name/log)"
  [ "$(starts $name/run)" -eq 1 ] || fail "it was started again"
  trained=$(sed -n 's/.*"event":"stop".*"trained_step":\([0-9]*\),.*"reason":"diverged".*/\1/p' $name/run/ledger.jsonl)
  [ -n "$trained" ] || fail "the ledger does not say it: $(tail -n 2 $name/run/ledger.jsonl)"
  [ ! -e $name/run/checkpoints/$(printf step-%09d 12) ] || fail "the end was saved"
  "$anyorder" status --run-dir $name/run >$name/status || fail "status"
  expect_text "^state  *diverged" $name/status
  expect_text "^step  *$trained of 12 .* %, then only skipped ones" $name/status
  expect_text "recomputed, $((12 - trained)) skipped" $name/status
  timeout 60 "$anyorder" status $name/run --watch 0.2 >$name/watched || fail "--watch does not end"
  expect_text "^error  *the run diverged" $name/status
  expect_text "SUSPECT: only skipped steps follow" $name/status
  "$anyorder" export $name/run --output $name/hf >$name/exported 2>&1 || fail "export"
  expect_text "diverged after step $trained: the weights of step [0-9]* are those that it diverged with" $name/exported
  "$anyorder" inspect "$(newest $name/run)" >$name/inspected || fail "inspect"
  expect_text "^trained_step  *$trained$" $name/inspected
  "$anyorder" report --run-dir $name/run >$name/page || fail "report"
  expect_text '<span class="state diverged">' $name/run/report.html
  "$anyorder" inspect $name/run --ledger >$name/audit || fail "inspect --ledger: $(cat $name/audit)"
  # The same again would end the same way; with a lower rate it goes on from before.
  expect_refused_in_a_line 93 "diverged after step $trained.*optimizer.learning_rate" launch "$name/run" "${wild[@]}"
  launch "$name/run" "${wild[@]}" --set optimizer.learning_rate=0.001 --allow-schedule-change >$name/log2 2>&1
  expect_status $? 0 "with another rate"
  expect_text "checkpoint of step [0-9]* is set aside" $name/log2
  [ -d $name/run/checkpoints/$(printf step-%09d 12) ] || fail "it was not finished"
  "$anyorder" status --run-dir $name/run >$name/status || fail "status"
  expect_text "^state  *finished" $name/status
  ! grep -q SUSPECT $name/status || fail "a good checkpoint is called suspect"
  "$anyorder" inspect $name/run --ledger >$name/audit || fail "inspect --ledger: $(cat $name/audit)" ;;

*) fail "no such case" ;;
esac
echo "$name: passed"
