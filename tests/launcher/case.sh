#!/usr/bin/env bash
# One end-to-end case: real programs, real signals, a tiny model on generated text.
#
# Usage: case.sh BIN_DIR WORK_DIR CASE `prepare` first: it makes the dataset and the undisturbed run
# that others compare with.
set -u
bin=$1 work=$2 name=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
anyorder=$bin/anyorder
steps=300
last=step-000000300  # name of the last checkpoint
mkdir -p "$work" && cd "$work" || exit 1
rm -rf "$name" && { [ "$name" = prepare ] || mkdir "$name"; }

fail() { echo "FAILED: $*" >&2; [ -f "$name/log" ] && tail -n 15 "$name/log" >&2; exit 1; }
expect_status() { [ "$1" -eq "$2" ] || fail "exit status $1, expected $2 ($3)"; }
expect_text() { grep -q -- "$1" "$2" || fail "'$1' is not in $2: $(tail -n 3 "$2")"; }

# launch RUN [options...]: the tiny run in directory RUN.
compose() {
  local run=$1; shift
  command=("$anyorder" launch --config "$here/tiny.toml" --run-dir "$run" --set data.shards="$work/shards" --set train.steps=$steps "$@")
}
launch() { compose "$@"; "${command[@]}"; }
digest() { "$anyorder" inspect "$1/checkpoints/$last" --json | sed -n 's/.*"state_digest": "\(.*\)".*/\1/p'; }
losses() { sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/' "$1/metrics.jsonl"; }
expect_same_run() {
  [ -n "$(digest "$1")" ] && [ "$(digest "$1")" = "$(cat reference.digest)" ] || fail "$1 ends in another state than the undisturbed run"
  losses "$1" | diff -q - reference.losses >/dev/null || fail "$1 has other losses than the undisturbed run: $(losses "$1" | diff - reference.losses | head -n 4)"
}
evaluate() { "$anyorder" eval --run-dir "$@"; }
commits() { ls -d "$1"/checkpoints/step-*[0-9] 2>/dev/null | wc -l; }
# await COMMAND...: until it succeeds.
await() { local i; for i in $(seq 600); do "$@" && return; sleep 0.05; done; fail "waited in vain for: $*"; }
has_commit() { [ "$(commits "$1")" -ge 1 ]; }
rank_pids() { pgrep -f -- "^$bin/anyorder-train --run-dir $work/$1 " || true; }
service_pids() { pgrep -f -- "^$bin/anyorder-ckptd --run-dir $work/$1 " || true; }
mpirun_pids() { pgrep -f -- "^mpirun .* --run-dir $work/$1 " || true; }
# start RUN [options...]: launch in the background, until a checkpoint is committed. Sets $job.
start() {
  local run=$1; shift
  compose "$work/$run" "$@"
  "${command[@]}" >"$name/log" 2>&1 &
  job=$!  # of the launcher itself, not of a shell around it
  await has_commit "$run"
  kill -0 "$job" 2>/dev/null || fail "the run ended before it could be disturbed"
}

case $name in
prepare)
  rm -rf shards other-shards reference reference.*
  python3 "$here/make_text.py" 1 >corpus.txt && python3 "$here/make_text.py" 2 >other.txt
  "$anyorder" prep --input corpus.txt --output shards --vocab-size 300 --no-filter --no-dedup || fail "prep"
  "$anyorder" prep --input other.txt --output other-shards --vocab shards/spiece.model --no-filter --no-dedup || fail "prep"
  launch "$work/reference" --ranks 1 || fail "the undisturbed run"
  digest reference >reference.digest && losses reference >reference.losses
  [ "$(wc -l <reference.losses)" -eq $steps ] || fail "metrics.jsonl does not have one line a step" ;;

ranks)
  for ranks in 2 3 4; do
    launch "$name/run$ranks" --ranks $ranks >"$name/log" 2>&1; expect_status $? 0 "$ranks ranks"
    expect_same_run "$name/run$ranks"
    "$anyorder" inspect "$name/run$ranks/checkpoints/$last" --json >"$name/json"
    expect_text "\"world_size\": $ranks," "$name/json"
  done ;;

killed_rank)
  start $name/run --ranks 2
  kill -9 "$(rank_pids $name/run | tail -n 1)"
  wait $job; expect_status $? 0 "after a killed rank"
  expect_text "starting again" $name/log
  expect_same_run $name/run ;;

frozen_rank)
  # One rank is stopped, as by a debugger or a sick machine: it is named, killed and started again.
  start $name/run --ranks 3 --set dist.hang_report_seconds=2 --set dist.collective_timeout_seconds=5
  frozen=$(rank_pids $name/run | tail -n 1)
  kill -STOP "$frozen"
  wait $job; expect_status $? 0 "after a stopped rank"
  expect_text "rank [0-9] on .*: collective [0-9]* ([A-Za-z]*) has run for .* in phase '.*'; missing: .*rank [0-9] on [^ ]* (process $frozen): in phase '.*', [a-z]* collective [0-9]* .*stopped or lost" $name/log
  expect_text "starting again" $name/log
  # A dead process whose new parent has not asked for it yet (Z) is no rank any more.
  ! grep -q '^State:.[^ZX]' "/proc/$frozen/status" 2>/dev/null || fail "the stopped rank still lives"
  expect_same_run $name/run ;;

frozen_run)
  # No rank is left that could report: the launcher sees it.
  start $name/run --ranks 1 --set dist.hang_report_seconds=1 --set dist.collective_timeout_seconds=3
  frozen=$(rank_pids $name/run)
  kill -STOP $frozen
  wait $job; expect_status $? 0 "after a stopped run"
  expect_text "rank 0 on [^ ]* (process $frozen): in phase 'step .*hangs" $name/log
  expect_text "starting again" $name/log
  expect_same_run $name/run ;;

killed_all)
  start $name/run --ranks 2
  kill -9 $job $(mpirun_pids $name/run) $(rank_pids $name/run) $(service_pids $name/run)
  wait $job 2>/dev/null
  no_ranks() { [ -z "$(rank_pids $name/run)" ]; }
  await no_ranks
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
  # Without the dataset the starts are still compared with each other; another dataset is none.
  sed -i "s|^shards = .*|shards = \"$work/$name/gone\"|" $name/run/config.toml
  audit $name/run; expect_status $? 0 "a dataset that is gone"
  expect_text '"compared_with_plan": 0,' $name/json
  audit $name/run --data shards; expect_status $? 0 "a dataset that was moved"
  audit $name/run --data other-shards; expect_status $? 65 "another dataset"
  sed -i 's/\("step":100,.*"samples":"\)[0-9a-f]*/\10123456789abcdef/' $name/run/metrics.jsonl
  audit $name/run --data shards; expect_status $? 65 "a step with other samples"
  expect_text "first of step 100" $name/verdict ;;

killed_launcher)
  start $name/run --ranks 2
  scratch=$(tr '\0' '\n' <"/proc/$(mpirun_pids $name/run | head -n 1)/environ" | sed -n 's/^OMPI_MCA_\(orte_tmpdir_base\|btl_vader_backing_directory\)=//p')
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
  wait $job; expect_status $? 0 "after a killed service"
  expect_text "checkpoint service ended" $name/log
  expect_same_run $name/run ;;

stopped)
  start $name/run --ranks 2
  kill -TERM $job
  wait $job; expect_status $? 75 "after SIGTERM"
  # The newest checkpoint is where it stopped: nothing is trained twice.
  stopped=$(tail -n 1 $name/run/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/')
  [ -d "$name/run/checkpoints/$(printf 'step-%09d' "$stopped")" ] || fail "no checkpoint of step $stopped, where it stopped"
  expect_text '"event":"stop".*"exit_status":75' $name/run/ledger.jsonl
  launch "$work/$name/run" --ranks 2 >>$name/log 2>&1; expect_status $? 0 "going on"
  [ ! -e $name/run/metrics.redone.jsonl ] || fail "steps were trained twice"
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
  [ "$(grep -c '"event":"start"' $name/run/ledger.jsonl)" -eq 1 ] || fail "started again although it was to stop"
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
  [ "$(grep -c '"event":"start"' $name/run/ledger.jsonl)" -eq 1 ] || fail "started again on damaged data"
  expect_text "chunk" $name/log
  # A shard and a vocabulary of another tokenizer.
  "$anyorder" prep --input other.txt --output $name/foreign --vocab-size 290 --no-filter --no-dedup >$name/prep 2>&1 || fail "prep"
  for file in shard-00000.h5 spiece.model; do
    cp shards/* $name/shards && cp $name/foreign/$file $name/shards
    launch "$name/new" --ranks 2 --set data.shards="$work/$name/shards" >$name/log 2>&1; expect_status $? 65 "foreign $file"
    expect_text "$file" $name/log
    [ "$(wc -l <$name/log)" -eq 1 ] || fail "foreign $file: more than one line"
    [ ! -e $name/new ] || fail "foreign $file: something was written"
  done ;;

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
  [ "$(grep -c '"event":"start"' $name/disk/run/ledger.jsonl)" -eq 1 ] || fail "started again on a full disk"
  rm $name/disk/ballast
  "$anyorder" inspect $name/disk/run/CURRENT --verify >/dev/null 2>&1 || "$anyorder" inspect $name/disk/run --verify >$name/inspect 2>&1 || fail "the old checkpoint is damaged"
  compose "$work/$name/disk/run" --ranks 2 --set train.steps=1000000 --resume required
  "${command[@]}" >$name/again 2>&1 & job=$!
  goes_on() { grep -q "resuming after step" $name/again; }
  await goes_on
  kill -TERM $job; wait $job; expect_status $? 75 "going on with room" ;;

long_path)
  long=$name/$(printf 'a-run-directory-with-a-long-name-%.0s' 1 2 3 4 5)
  launch "$work/$long" --ranks 2 --set train.steps=5 >$name/log 2>&1; expect_status $? 0 "a path that no socket address holds"
  expect_text "COMMITTED" $name/log ;;

nothing_to_resume)
  launch "$name/run" --resume required >$name/log 2>&1; expect_status $? 65 "required without a checkpoint"
  expect_text "no committed checkpoint" $name/log
  [ ! -e $name/run ] || fail "something was written" ;;

refused)
  # A second launch on a live run directory, by name of the owner.
  start $name/run --ranks 1
  launch "$work/$name/run" >$name/second 2>&1; expect_status $? 64 "a second launch"
  expect_text "process $job" $name/second
  wait $job; expect_status $? 0 "the first launch"
  launch "$name/run" --resume never >$name/never 2>&1; expect_status $? 64 "never beside checkpoints"
  launch "$name/run" --set model.ffn_dim=96 >$name/changed 2>&1; expect_status $? 64 "another model"
  expect_text "model.ffn_dim" $name/changed
  cp $name/run/config.toml $name/frozen
  launch "$name/run" --set data.shards="$work/other-shards" >$name/data 2>&1; expect_status $? 65 "another dataset"
  expect_text "trained on dataset" $name/data
  cmp $name/frozen $name/run/config.toml || fail "a refused launch changed config.toml"
  # Parts of a dataset that are not there are bad data, not the machine's fault; no rank is started
  # for them.
  for part in shard-00000.h5 lanes.h5 spiece.model; do
    rm -rf $name/part && cp -r shards $name/part && rm $name/part/$part
    launch "$name/new" --set data.shards="$work/$name/part" >$name/missing 2>&1; expect_status $? 65 "no $part"
    expect_text "$part' is missing" $name/missing
  done
  cp -r shards/. $name/part && truncate -s -1 $name/part/shard-00000.h5
  launch "$name/new" --set data.shards="$work/$name/part" >$name/cut 2>&1; expect_status $? 65 "a truncated shard"
  expect_text "shard-00000.h5' has" $name/cut
  cp shards/shard-00000.h5 $name/part && cp other-shards/lanes.h5 $name/part
  launch "$name/new" --set data.shards="$work/$name/part" >$name/mixed 2>&1; expect_status $? 65 "a file of another dataset"
  expect_text "lanes.h5" $name/mixed
  mkdir $name/papers && touch $name/papers/thesis.tex
  launch "$name/papers" >$name/foreign 2>&1; expect_status $? 64 "a directory of other things"
  expect_text "holds 'thesis.tex' and no run" $name/foreign
  [ "$(ls -A $name/papers)" = thesis.tex ] || fail "something was written beside other files"
  (cd $name && launch "" >empty 2>&1; expect_status $? 64 "an empty --run-dir"); [ ! -e /config.toml ] || fail "wrote into /"
  "$anyorder" status --run-dir "$here/show" >$name/status 2>&1; expect_status $? 64 "status of something else"
  expect_text "is not a run directory" $name/status
  mkdir $name/bare
  for command in "prep --input $work/corpus.txt --output" "export --run-dir $work/reference --output" "status --run-dir" "inspect"; do
    (cd $name/bare && "$anyorder" $command "" >../empty 2>&1); expect_status $? 64 "$command with an empty path"
    expect_text "not be empty" $name/empty
  done
  [ -z "$(ls -A $name/bare)" ] || fail "something was written for an empty path"
  launch "$name/new" --ranks 9 >$name/many 2>&1; expect_status $? 64 "more ranks than microbatches"
  launch "$name/new" --set train.global_batch_siz=8 >$name/key 2>&1; expect_status $? 64 "an unknown key"
  launch "$name/new" --set train.lanes=8 >$name/old-key 2>&1; expect_status $? 64 "a key that has another name now"
  expect_text "unknown key .train.lanes.; its name is now .train.global_batch_size" $name/old-key
  expect_text "did you mean 'train.global_batch_size'" $name/key
  "$anyorder" launch --config "$here" --run-dir $name/new >$name/folder 2>&1; expect_status $? 64 "a directory for a configuration"
  expect_text "is a directory; name a TOML file" $name/folder
  "$anyorder" launch --config "$here/tiny.toml" --rnu-dir $name/new >$name/option 2>&1; expect_status $? 64 "an unknown option"
  expect_text "unknown option '--rnu-dir'; did you mean '--run-dir'" $name/option
  launch "$name/new" --set data.shards=nowhere >$name/shards 2>&1; expect_status $? 64 "no dataset"
  expect_text "nowhere' does not exist; .*anyorder prep" $name/shards
  "$anyorder" launch --config nowhere.toml --run-dir $name/new >$name/missing 2>&1; expect_status $? 64 "no configuration"
  expect_text "nowhere.toml' does not exist" $name/missing
  CUDA_VISIBLE_DEVICES="" launch "$name/new" --set train.device=cuda >$name/device 2>&1; expect_status $? 64 "no GPU"
  expect_text 'use train.device = "cpu"' $name/device
  [ "$(wc -l <$name/device)" = 1 ] || fail "more than one line: $(cat $name/device)"
  launch "$name/new" --backend slurm --ranks 2 >$name/ranks 2>&1; expect_status $? 64 "--ranks in a Slurm job"
  expect_text "use --ranks-per-node" $name/ranks
  SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1 PATH=$work/$name/bare "$anyorder" launch --backend slurm --config "$here/tiny.toml" --set data.shards="$work/shards" --run-dir $name/new >$name/srun 2>&1
  expect_status $? 64 "no srun"; expect_text "no srun in PATH" $name/srun
  [ "$(grep -o anyorder: $name/srun | wc -l)" = 1 ] || fail "the program's name twice: $(cat $name/srun)"
  "$anyorder" >$name/bare-front 2>&1; expect_status $? 64 "no subcommand"
  ! grep clean-node $name/bare-front || fail "an internal subcommand is listed"
  [ ! -e $name/new ] || fail "something was written"
  expect_same_run $name/run ;;

schedule)
  launch "$name/run" --set train.steps=20 >$name/log 2>&1; expect_status $? 0 "a short run"
  cp $name/run/config.toml $name/frozen
  # Longer and slower than it was started is another schedule, and needs a word.
  change=(--set train.steps=30 --set optimizer.learning_rate=0.001)
  launch "$name/run" "${change[@]}" >$name/refused 2>&1; expect_status $? 64 "another schedule"
  expect_text "train.steps = 20 .*--allow-schedule-change\|learning_rate.*--allow-schedule-change" $name/refused
  launch "$name/run" "${change[@]}" --set train.global_batch_size=16 --allow-schedule-change >$name/refused 2>&1; expect_status $? 64 "other lanes"
  expect_text "train.global_batch_size" $name/refused
  cmp $name/frozen $name/run/config.toml || fail "a refused launch changed config.toml"
  launch "$name/run" "${change[@]}" --allow-schedule-change >>$name/log 2>&1; expect_status $? 0 "an allowed change"
  expect_text '"event":"schedule".*learning_rate = 0.003 -> .*train.steps = 20 -> train.steps = 30' $name/run/ledger.jsonl
  expect_text "resuming after step 20 of 30" $name/log
  [ "$(wc -l <$name/run/metrics.jsonl)" -eq 30 ] || fail "not 30 steps"
  # Once allowed it is the run's schedule.
  "$anyorder" launch --run-dir $name/run >>$name/log 2>&1; expect_status $? 0 "the same again"
  [ "$(grep -c '"event":"schedule"' $name/run/ledger.jsonl)" -eq 1 ] || fail "recorded twice"
  # An end that has passed already: finished, not to be started again and again.
  launch "$name/run" "${change[@]}" --set train.steps=25 --allow-schedule-change >>$name/log 2>&1; expect_status $? 0 "an end in the past"
  expect_text "resuming after step 30 of 25; nothing is left to train" $name/log
  "$anyorder" status --run-dir $name/run >$name/status 2>&1; expect_text "finished" $name/status
  # Checkpoints of before the change are the run's, too.
  "$anyorder" export --run-dir $name/run --step 20 --output $name/hf >$name/export 2>&1; expect_status $? 0 "export of an older schedule"
  evaluate $name/run --step 20 --data other-shards >$name/eval 2>&1; expect_status $? 0 "eval of an older schedule"
  # Edited by hand, nobody allowed it.
  sed -i 's/^steps = 25/steps = 40/' $name/run/config.toml
  "$anyorder" launch --run-dir $name/run >$name/edited 2>&1; expect_status $? 65 "an edited config.toml"
  expect_text "belongs to another configuration" $name/edited ;;

singletons)
  mkdir $name/run && cp reference/config.toml $name/run/
  ANYORDER_WORLD_SIZE=2 mpirun -n 1 "$bin/anyorder-train" --run-dir $name/run --run-id x --attempt 1 >$name/log 2>&1
  expect_status $? 64 "one rank where two were promised"
  expect_text "anyorder-train: " $name/log
  [ "$(ls $name/run)" = config.toml ] || fail "something was written" ;;

crash_loop)
  # Every start fails: TensorBoard's directory is a file.
  mkdir $name/run && cp reference/config.toml $name/run && touch $name/run/tensorboard
  launch "$name/run" --ranks 2 >$name/log 2>&1; expect_status $? 93 "a crash loop"
  expect_text "3 starts in a row.*tensorboard" $name/log
  [ "$(grep -c '"event":"start"' $name/run/ledger.jsonl)" -eq 3 ] || fail "not three starts" ;;

exported)
  mkdir $name/hf.tmp && touch $name/hf.tmp/precious
  "$anyorder" export --run-dir reference --format hf --output $name/hf >$name/log 2>&1; expect_status $? 0 "export"
  expect_text "exported step $steps to" $name/log
  [ -e $name/hf.tmp/precious ] || fail "export removed a directory of the user"
  "$anyorder" export --run-dir reference --output "" >$name/empty 2>&1; expect_status $? 64 "an empty --output"
  python3 "$here/check_export.py" $name/hf reference shards || fail "the exported files are wrong"
  "$anyorder" export --run-dir reference --output $name/hf >$name/again 2>&1; expect_status $? 64 "output not empty"
  "$anyorder" export --run-dir reference --step 7 --output $name/hf7 >$name/step 2>&1; expect_status $? 74 "no such step"
  "$anyorder" export --run-dir reference --step -5 --output $name/hf7 >$name/step 2>&1; expect_status $? 64 "a negative step"
  [ -z "$(ls -d $name/hf7* 2>/dev/null)" ] || fail "something was left behind"
  cp -r reference $name/damaged
  printf x | dd of="$(ls $name/damaged/checkpoints/$last/*.safetensors)" bs=1 seek=20000 conv=notrunc 2>/dev/null
  "$anyorder" export --run-dir $name/damaged --step $steps --output $name/hf300 >$name/step 2>&1; expect_status $? 65 "a damaged step"
  expect_text "$last.*name another step" $name/step
  [ ! -e $name/hf300 ] || fail "a damaged step was exported"
  "$anyorder" export --run-dir $name/damaged --output $name/older >$name/out 2>$name/err; expect_status $? 0 "an older step"
  expect_text "exported step 270 to" $name/out
  [ "$(wc -l <$name/err)" -eq 1 ] || fail "not one line of warning: $(cat $name/err)"
  expect_text "step $steps is damaged" $name/err
  launch "$name/run" --set model.head_dim=8 --set train.steps=2 >>$name/log 2>&1; expect_status $? 0 "a model of another form"
  "$anyorder" export --run-dir $name/run --output $name/hf2 >$name/refused 2>&1; expect_status $? 65 "not representable"
  expect_text "head_dim" $name/refused ;;

evaluated)
  # In training: the same losses on any number of ranks, and the same as afterwards.
  for ranks in 1 2 3; do
    launch "$name/run$ranks" --ranks $ranks --set train.steps=40 --set eval.shards="$work/other-shards" --set eval.every=25 --set eval.batches=2 >$name/log 2>&1
    expect_status $? 0 "evaluations on $ranks ranks"
    grep -o '"eval_loss":.*"eval_targets":[0-9]*' $name/run$ranks/metrics.jsonl >$name/losses$ranks
    cmp $name/losses1 $name/losses$ranks || fail "$ranks ranks have other held-out losses"
  done
  # The last step is evaluated though 25 does not divide 40.
  [ "$(wc -l <$name/losses1)" -eq 2 ] || fail "not two evaluations"
  grep -aq eval/loss $name/run2/tensorboard/events* || fail "TensorBoard has no held-out loss"
  "$anyorder" status --run-dir $name/run2 >$name/log; expect_text "^held-out .* after step 40" $name/log
  for threads in 1 2; do
    evaluate $name/run2 --json --threads $threads >$name/own$threads || fail "eval"
    evaluate $name/run2 --json --objective causal --same-length --mem-len 100 --target-len 20 --batch-size 3 --threads $threads >$name/causal$threads || fail "eval of the causal objective"
  done
  cmp $name/own1 $name/own2 && cmp $name/causal1 $name/causal2 || fail "the number of threads changes digits"
  launch "$name/causal" --set train.steps=60 --set objective.name=causal_lm --set sampling.reuse_len=256 --set sampling.num_predict=85 --set sampling.perm_size=256 >$name/log 2>&1 || fail "a causal run"
  evaluate $name/causal --data other-shards --json --objective causal --mem-len 128 >$name/one-stream || fail "eval of a causal run"
  python3 "$here/check_eval.py" $name other.txt || fail "the reports are wrong"
  evaluate $name/run2 >$name/table && expect_text "^backward  *reuse" $name/table && expect_text "no perplexity" $name/table
  evaluate $name/causal --data other-shards --objective causal >$name/table && expect_text "^perplexity" $name/table && expect_text "^definition " $name/table
  # Older steps, and text that is not held out.
  evaluate $name/run2 --step 30 --json >$name/json && expect_text '"step": 30,' $name/json
  evaluate $name/run2 --data shards --json >$name/json 2>$name/err && expect_text '"is_training_data": true' $name/json
  expect_text "trained on: this is not a held-out loss" $name/err ;;

eval_stopped)
  # A signal in the middle of a long evaluation: the run stops at once, at that step.
  "$anyorder" launch --config "$here/tiny.toml" --run-dir "$work/$name/long" --ranks 2 --set data.shards="$work/shards" --set train.steps=1000000 \
    --set eval.shards="$work/shards" --set eval.every=1 --set eval.batches=0 --set eval.batch_size=2 --set checkpoint.every=0 >$name/log 2>&1 & job=$!
  evaluates() { grep -q "step 1 held-out loss" $name/log; }
  await evaluates
  kill -TERM $job; wait $job; expect_status $? 75 "after SIGTERM"
  stopped=$(tail -n 1 $name/long/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/')
  [ -d "$name/long/checkpoints/$(printf 'step-%09d' "$stopped")" ] || fail "no checkpoint of step $stopped, where it stopped" ;;

eval_refused)
  touch $name/begin
  refused() {  # STATUS TEXT WHAT [options of eval...]
    local status=$1 text=$2 what=$3; shift 3
    evaluate "$@" >$name/out 2>$name/err; expect_status $? $status "$what"
    [ "$(wc -l <$name/err)" -eq 1 ] && [ ! -s $name/out ] || fail "$what: not one line: $(cat $name/err)"
    expect_text "$text" $name/err
  }
  refused 64 "is not a run directory" "no run" "$here"
  refused 64 "give --data" "no text" reference
  refused 74 "nowhere" "a dataset that is not there" reference --data nowhere
  refused 74 "step-000000007" "no such step" reference --data other-shards --step 7
  mkdir $name/new && cp reference/config.toml $name/new
  refused 74 "checkpoint" "a run without checkpoints" $name/new --data other-shards
  "$anyorder" prep --input other.txt --output $name/foreign --vocab-size 290 --no-filter --no-dedup >$name/prep 2>&1 || fail "prep"
  refused 65 "prep --vocab" "text of another tokenizer" reference --data $name/foreign
  refused 65 "fill the memory and 5000 more" "too many batches" reference --data other-shards --batches 5000
  refused 65 "too short for 4000 lanes" "too many lanes" reference --data other-shards --batch-size 4000
  refused 65 "too short for 99999 lanes" "too many lanes of a text" reference --data other-shards --objective causal --batch-size 99999
  refused 64 "even" "an odd number of lanes in two directions" reference --data other-shards --batch-size 3
  for option in "--mem-len 5" "--target-len 5" "--clamp-len 5" --same-length "--objective causal --seed 2"; do
    refused 64 "is not used with" "an option of the other objective" reference --data other-shards $option
  done
  refused 64 "not possible in an evaluation" "another model" reference --data other-shards --set model.num_layers=1
  refused 64 "memory length 0" "same length without memory" reference --data other-shards --objective causal --same-length --mem-len 0
  refused 64 "at most the length of the text" "a memory longer than the text" reference --data other-shards --objective causal --mem-len 1000000
  refused 64 "clamp-len is 0" "no distance at all" reference --data other-shards --objective causal --clamp-len 0
  refused 64 "batch-size" "no lanes" reference --data other-shards --batch-size 0
  refused 64 "objective" "an unknown objective" reference --data other-shards --objective bert
  cp -r reference $name/damaged
  printf x | dd of="$(ls $name/damaged/checkpoints/$last/*.safetensors)" bs=1 seek=20000 conv=notrunc 2>/dev/null
  refused 65 "name another step" "a damaged step" $name/damaged --data other-shards --step $steps
  evaluate reference --data other-shards --objective causal --batch-size 200 --target-len 1048576 --json >$name/json
  expect_status $? 0 "segments longer than the text"
  grep -q '"target_len": [0-9]\{1,4\},' $name/json || fail "more is computed than there is text"
  [ -z "$(find reference -newer $name/begin)" ] || fail "eval changed the run directory"
  # And what launch refuses, before it writes.
  for set in eval.shards="$work/$name/foreign" eval.batches=5000 eval.batch_size=3 eval.shards=; do
    launch "$name/none" --set eval.shards="$work/other-shards" --set eval.every=5 --set $set >$name/log 2>&1
    [ $? -ge 64 ] && [ "$(wc -l <$name/log)" -eq 1 ] && [ ! -e $name/none ] || fail "launched with $set: $(cat $name/log)"
    expect_text "eval\." $name/log
  done ;;

imported)
  settings="--set optimizer.learning_rate=1e-4"
  import() { "$anyorder" import --format hf --input $name/hf --output "$1" --config "$here/tiny.toml" --set train.steps=$steps $settings; }
  "$anyorder" export --run-dir reference --output $name/hf >$name/log 2>&1 || fail "export"
  import $name/run >>$name/log 2>&1; expect_status $? 0 "import"
  # Before any training: the same files again, and no dataset is needed for it.
  "$anyorder" export --run-dir $name/run --output $name/again >>$name/log 2>&1; expect_status $? 0 "export of an import"
  diff -r $name/hf $name/again >$name/diff || fail "export(import(x)) is not x: $(cat $name/diff)"
  "$anyorder" status --run-dir $name/run >$name/status || fail "status of an imported run"
  expect_text "checkpoint   step 0" $name/status
  evaluate $name/run --data other-shards --json >$name/json || fail "eval of an imported run"
  # Weights of PyTorch's own kind need torch, which may not be there.
  mkdir $name/bin $name/no-torch && touch $name/bin/pytorch_model.bin && echo 'raise ImportError("hidden")' >$name/no-torch/torch.py
  PYTHONPATH="$work/$name/no-torch" python3 "$here/../../launcher/huggingface/convert_bin.py" $name/bin >$name/convert 2>&1; expect_status $? 74 "no torch"
  expect_text "torch is missing.*pip install torch" $name/convert
  # Another vocabulary, another model, lost weights: refused, and nothing is written.
  "$anyorder" prep --input other.txt --output $name/foreign --vocab-size 290 --no-filter --no-dedup >$name/prep 2>&1 || fail "prep"
  find $name/run -type f | sort >$name/before
  launch "$work/$name/run" $settings --set data.shards="$work/$name/foreign" >$name/refused 2>&1; expect_status $? 65 "another vocabulary"
  expect_text "anyorder prep --vocab .*/run/spiece.model" $name/refused
  launch "$work/$name/run" $settings --set model.ffn_dim=128 >$name/refused 2>&1; expect_status $? 64 "another model"
  expect_text "model.ffn_dim = 256 and do not fit model.ffn_dim = 128" $name/refused
  mv $name/run/checkpoints/step-000000000 $name/weights
  launch "$work/$name/run" $settings >$name/refused 2>&1; expect_status $? 65 "lost weights"
  mv $name/weights $name/run/checkpoints/step-000000000
  find $name/run -type f | sort | diff -q $name/before - || fail "a refused start wrote something"
  launch "$work/$name/run" --ranks 2 --resume required $settings >>$name/log 2>&1; expect_status $? 0 "continued pretraining"
  expect_text "resuming after step 0" $name/log
  # It goes on where the old run ended, not where a new one begins.
  mean() { awk -v first="$2" -v last="$3" '$1 >= first && $1 <= last { sum += $2; n++ } END { print sum / n }' "$1"; }
  losses $name/run >$name/losses
  echo "$(mean $name/losses 1 20) $(mean reference.losses 281 300) $(mean reference.losses 1 5)" |
    awk '{ exit !($1 < $2 + ($3 - $2) / 4) }' || fail "losses begin at $(mean $name/losses 1 20)"
  # The same from the same files, killed on the way, on other ranks.
  import $name/killed >>$name/log 2>&1; expect_status $? 0 "import"
  compose "$work/$name/killed" --ranks 3 $settings
  "${command[@]}" >>$name/log 2>&1 &
  job=$!
  has_trained() { [ -d $name/killed/checkpoints/step-000000030 ]; }
  await has_trained
  kill -9 "$(rank_pids $name/killed | tail -n 1)"
  wait $job; expect_status $? 0 "after a killed rank"
  expect_text "starting again" $name/log
  [ "$(digest $name/run)" = "$(digest $name/killed)" ] || fail "the killed run ends in another state"
  # After training the files tell the run's settings, and keep what the run knows nothing of.
  "$anyorder" export --run-dir $name/run --output $name/trained >>$name/log 2>&1; expect_status $? 0 "export of a trained import"
  cmp -s $name/hf/model.safetensors $name/trained/model.safetensors && fail "training changed nothing"
  cmp $name/hf/spiece.model $name/trained/spiece.model || fail "another vocabulary" ;;

reported)
  "$anyorder" status --run-dir reference >$name/log || fail "status"
  expect_text "finished" $name/log
  "$anyorder" inspect reference/checkpoints/$last --verify --json >$name/json || fail "inspect"
  "$anyorder" inspect shards --verify >$name/dataset || fail "inspect of a dataset"
  expect_text "tokens" $name/dataset
  "$anyorder" inspect shards 2>$name/full >/dev/full; expect_status $? 74 "a full disk behind standard output"
  expect_text "standard output" $name/full
  "$anyorder" inspect "$here" >$name/none 2>&1; expect_status $? 64 "inspect of something else"
  "$anyorder" inspect $name/nowhere >$name/none 2>&1; expect_status $? 64 "inspect of nothing"
  expect_text "name the directory of one" $name/none
  "$anyorder" report --run-dir reference --output $name/report.html >$name/page || fail "report"
  expect_text '<tr data-class="train" data-seconds="[0-9]' $name/report.html
  "$anyorder" inspect reference --verify >$name/verified || fail "inspect --verify of a run"
  expect_text "^verified  *every byte of [1-9][0-9]* checkpoints\? agrees" $name/verified
  python3 "$here/check_run.py" reference $steps || fail "the run directory is wrong"
  cp -r reference $name/run
  # A run that is not done is watched until somebody has seen enough.
  sed -i 's/^steps = .*/steps = 999/' $name/run/config.toml
  timeout --foreground --preserve-status -s INT 2 "$anyorder" status --run-dir $name/run --watch 0.2 >$name/watched; expect_status $? 0 "watching until Ctrl-C"
  [ "$(grep -c ' stopped step 300 of 999, loss' $name/watched)" -ge 2 ] || fail "watching printed $(cat $name/watched)"
  timeout --foreground --preserve-status -s INT 2 "$anyorder" status --run-dir $name/run --watch 0.2 --json >$name/watched
  python3 -c 'import json, sys; assert len([json.loads(line) for line in open(sys.argv[1])]) >= 2' $name/watched || fail "watching as JSON"
  payload=$(ls $name/run/checkpoints/$last/*.safetensors)
  printf x | dd of="$payload" bs=1 seek=20000 conv=notrunc 2>/dev/null
  "$anyorder" inspect $name/run/checkpoints/$last --verify >$name/damaged 2>&1; expect_status $? 65 "a damaged checkpoint"
  expect_text "rename or remove" $name/damaged
  expect_text "$(basename "$payload").*tensor '" $name/damaged
  rm $name/run/checkpoints/$last/MANIFEST.json
  "$anyorder" inspect $name/run/checkpoints/$last >$name/damaged 2>&1; expect_status $? 65 "a checkpoint without its manifest"
  expect_text "has no MANIFEST.json" $name/damaged ;;

*) fail "no such case" ;;
esac
echo "$name: passed"
