#!/usr/bin/env bash
# `anyorder submit` and `anyorder prep --slurm` against a fake sbatch: which options are taken, what
# is written, what is refused, and what the script does with each end of the launcher. Jobs that
# really run are cases of tests/slurm.
#
# Usage: submit.sh BIN_DIR WORK_DIR CASE WORK_DIR: that of case.sh, with the dataset of its case
# `prepare`
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "submit-$3"
cd "$name" && name=. work=$PWD shards=$2/shards templates=$here/../../slurm && mkdir path fake || exit 1
for command in sbatch scontrol squeue srun scancel; do ln -s "$here/fake_slurm.sh" path/$command; done
export FAKE_SLURM=$work/fake PATH=$work/path:$PATH
unset "${!SBATCH_@}" "${!SLURM_@}"
echo "specific pmix plugin versions available: pmix_v4" >fake/mpi-list
touch fake/calls

has() { expect_text "$@"; }
has_not() { ! grep -q -- "$1" "$2" || fail "'$1' is in $2: $(grep -- "$1" "$2")"; }
one_line() { [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"; }
# submit STATUS [options...]: of run `run`; output in out and err.
submit() {
  local expected=$1; shift
  "$bin/anyorder" submit --run-dir run --config "$here/tiny.toml" --set data.shards="$shards" --set train.steps=${steps:-30} "$@" >out 2>err
  expect_status $? "$expected" "submit $*: $(cat err)"
}
# refuse STATUS TEXT [options...]: one line that says TEXT; nothing is written or submitted.
refuse() {
  local expected=$1 text=$2; shift 2
  submit "$expected" "$@"
  one_line; has "$text" err
  [ ! -e run ] || fail "something was written for: $*"
  has_not sbatch fake/calls
}
check_script() {
  bash -n "$1" || fail "$1 is no bash"
  has_not '@[A-Z_]*@' "$1"
  check_with_shellcheck "$1"
}
check_with_shellcheck() {
  if command -v shellcheck >/dev/null; then shellcheck -S warning -e SC1090,SC1091 "$1" >shellcheck.log || fail "shellcheck: $(head -n 20 shellcheck.log)"; fi
}
job() { echo "JobId=$1 JobName=x UserId=me(1) JobState=$2 Reason=None Partition=p NodeList=n1 NumNodes=2" >fake/job-$1; }

case $3 in
refused)
  refuse 64 "did you mean 'train.global_batch_size'" --set train.global_batch_siz=8
  refuse 64 "nowhere' does not exist; .*anyorder prep" --set data.shards=nowhere
  refuse 64 "world size\|ranks" --nodes 3 --ranks-per-node 4
  refuse 64 "must be minutes, H:M:S" --time soon
  refuse 64 "not longer than the 120 s" --time 2
  refuse 64 "not a job number" --after first
  refuse 64 "mpi" --mpi pmi2
  refuse 64 "unexpected argument 'oops'" oops
  refuse 64 "an array would run it several times" -- --array=1-2
  refuse 64 "the script is this program's" -- --wrap true
  refuse 64 "use --dry-run" -- --test-only
  refuse 64 "did you mean '--nodes'" --noeds 2
  refuse 64 "signal-seconds" --signal-seconds 0
  "$bin/anyorder" submit --run-dir run --config nowhere.toml >out 2>err; expect_status $? 64 "no configuration"; one_line; has "nowhere.toml' does not exist" err
  "$bin/anyorder" submit --run-dir run >out 2>err; expect_status $? 64 "neither a run nor a configuration"; one_line
  rm fake/mpi-list
  refuse 64 "names no pmix" --mpi srun
  PATH=$work/empty "$bin/anyorder" submit --run-dir run --config "$here/tiny.toml" --set data.shards="$shards" >out 2>err; expect_status $? 74 "no sbatch"
  one_line; has "no sbatch in PATH.*--dry-run.*anyorder launch" err
  # An existing run keeps its rules: another model is another run.
  cp -r ../reference run
  before=$(cd run && find . -type f | sort | xargs md5sum)
  submit 64 --set train.steps=300 --set model.ffn_dim=96; has "model.ffn_dim" err
  submit 64 --set train.steps=300 --resume never; has "never" err
  [ "$before" = "$(cd run && find . -type f | sort | xargs md5sum)" ] || fail "a refused submit changed the run" ;;

inventory)
  # What is known of the nodes refuses what none of them can hold, before anything is written.
  # knows TEXT: an inventory that earlier starts or the doctor left; keeps what the run holds.
  knows() { mkdir -p run/.launch && echo "$1" >run/.launch/nodes.json; kept=$(find run | sort | xargs ls -ld); }
  changed_nothing() { [ "$kept" = "$(find run | sort | xargs ls -ld)" ] || fail "something was written: $(find run)"; has_not sbatch fake/calls; }
  too_large() { submit 74 "$@"; one_line; has "'run/.launch/nodes.json' (remove it if there are larger nodes): node n[12]: each of a machine's ranks .*$text" err; changed_nothing; }
  fits() { submit 0 --dry-run "$@"; }
  cpu=(--set train.device=cpu) gpu=(--set train.device=cuda)
  knows '{"n1": {"host_bytes": 1048576, "gpus": 2, "gpu_bytes": 2097152, "partition": "small"},
          "n2": {"host_bytes": 1048576, "gpus": 1, "gpu_bytes": 1048576, "partition": "small"}}'
  text="(2) needs at least .* and the machine has 1.0 MiB;" too_large "${cpu[@]}" --nodes 2 --ranks-per-node 2
  text="and the machine has 1.0 MiB and 4 GPUs of 1.0 MiB" too_large "${gpu[@]}" --ranks-per-node 4
  text="" too_large "${cpu[@]}" --partition small; text="" too_large "${cpu[@]}" --dry-run
  # Nodes that nobody has seen may be larger.
  fits "${cpu[@]}" --partition large; fits "${cpu[@]}" -- -C big; fits "${cpu[@]}" -- --nodes=2
  # Nor does what is unknown refuse anything: whether "auto" finds a GPU, how much memory it has.
  knows '{"n1": {"host_bytes": 1048576, "gpus": 0, "gpu_bytes": 0}, "n2": {}}'
  fits; fits "${gpu[@]}"; fits "${cpu[@]}"
  # One that has room is enough; of named hosts each must have it.
  knows '{"n1": {"host_bytes": 1048576}, "n2": {"host_bytes": 1099511627776}, "n3": {"host_bytes": 1099511627776}, "n4": {"host_bytes": 1}}'
  fits "${cpu[@]}" --nodes 2
  # hosts STATUS HOSTS [options...]: a launch there, which fails for want of ssh if not before.
  hosts() {
    "$bin/anyorder" launch --hosts $2 --rsh nowhere --run-dir run --config "$here/tiny.toml" --set data.shards="$shards" "${cpu[@]}" "${@:3}" >out 2>err
    expect_status $? $1 "hosts $*: $(cat err)"
    one_line; changed_nothing
  }
  hosts 74 n2:1,n1:2; has "/run/.launch/nodes.json' (.*): node n1: each of a machine's ranks (2) needs" err
  hosts 64 n2:1,n3:2; has "there is no 'nowhere'" err
  hosts 64 n2:1,n1:2 --ranks 1; has "there is no 'nowhere'" err  # n1 gets none
  hosts 64 n8:1,n9:2; has "there is no 'nowhere'" err
  # In a job: as many ranks as it has, on nodes of its partition.
  # in_job PARTITION STATUS TEXT: a launch there, which fails for want of PMIx if not before.
  in_job() {
    env SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=${tasks:-2} SLURM_JOB_PARTITION=$1 "$bin/anyorder" launch --backend slurm --mpi srun \
      --run-dir run --config "$here/tiny.toml" --set data.shards="$shards" "${cpu[@]}" >out 2>err
    expect_status $? $2 "in a job of $1: $(cat err)"
    one_line; has "$3" err; changed_nothing
  }
  knows '{"n1": {"host_bytes": 1048576, "partition": "small"}, "n2": {"partition": "other"}}'
  echo "MPI plugin types are... none" >fake/mpi-list
  in_job small 74 "node n1: each of a machine's ranks (2) needs"
  in_job other 64 "names no pmix"
  # More ranks than microbatches are made fewer, then each needs more: not known here.
  tasks=9 in_job small 64 "names no pmix"
  echo "specific pmix plugin versions available: pmix_v4" >fake/mpi-list
  # A damaged inventory refuses nothing, and says so.
  knows '{"n1": {"host_bytes": 1048576'
  fits "${cpu[@]}"; has "warning: what nodes have is unknown: 'run/.launch/nodes.json': not valid JSON" err ;;

script)
  for template in train prep; do
    bash -n "$templates/$template.sbatch.in" || fail "$template.sbatch.in is no bash"
    check_with_shellcheck "$templates/$template.sbatch.in"
  done
  submit 0 --nodes 2 --ranks-per-node 4 --cpus-per-rank 3 --gpus-per-node 4 --time 1-12 --partition batch --account "our group" --allow-schedule-change
  [ "$(cat out)" = 101 ] || fail "stdout is not the job's number: $(cat out)"
  script=run/slurm/train.sbatch
  check_script $script
  for line in "--nodes=2" "--ntasks-per-node=4" "--cpus-per-task=3" "--gpus-per-node=4" "--time=1-12" "--partition=batch" 'account="our group"' \
    "--output=$work/run/slurm/job-%j.log" "--open-mode=append" "--requeue" "--no-kill" "--signal=B:USR1@120"; do has "^#SBATCH .*$line\$" $script; done
  has "launch --backend slurm .*--ranks-per-node 4 --allow-schedule-change" $script; has "^mpi=srun" $script
  has "srun --mpi=pmix: 'srun --mpi=list' names it" $script; has "names it" err
  has "SLURM_PMIX_FENCE" $script
  has_not "^trap.*CONT" $script
  cmp -s $script run/slurm/job-101.sbatch || fail "the script of job 101 is not kept"
  has "sbatch \[--parsable\] \[$work/run/slurm/train.sbatch\]" fake/calls
  # The configuration that was checked is the one that the job starts with.
  config=$(sed -n 's/.*--config \([^ ]*\).*/\1/p' $script | tail -n 1)
  has "^steps = 30" "$config"; has "^shards = \"$shards\"" "$config"
  rm -rf again && mv run again
  # Without PMIx; a dry run writes and submits nothing.
  rm fake/mpi-list; cp fake/calls calls.before
  submit 0 --dry-run --nodes 2
  check_script out
  has "^mpi=mpirun" out; has "names no pmix" out
  has "^# sbatch --parsable $work/run/slurm/train.sbatch" out
  for path in run/ run/. new/../run/; do
    "$bin/anyorder" submit $path --config "$here/tiny.toml" --set data.shards="$shards" --dry-run >out 2>err || fail "submit $path: $(cat err)"
    has "^#SBATCH --job-name=anyorder-run$" out
  done
  [ ! -e run ] || fail "a dry run wrote something"
  [ "$(grep -c sbatch fake/calls)" -eq "$(grep -c sbatch calls.before)" ] || fail "a dry run submitted something" ;;

passed_on)
  submit 0 --time 10:00:00 --partition batch -- -p debug --qos=long --comment "two words" -n 6 --signal=B:USR1@9
  script=run/slurm/train.sbatch
  check_script $script
  has "^#SBATCH -p debug$" $script; has "^#SBATCH --qos=long$" $script; has '^#SBATCH --comment "two words"$' $script
  has_not "--partition=batch" $script; has_not "USR1@120" $script
  has "note: '-p debug' after -- replaces '--partition=batch'" err
  has "note: '--signal=B:USR1@9' after -- replaces" err
  # A variable that sbatch would follow.
  SBATCH_TIMELIMIT=5 submit 0 --dry-run; has "note: SBATCH_TIMELIMIT=5 in the environment" err
  # Names that a shell and Slurm read in their own way.
  odd="a b'c\$(d)%j#"
  "$bin/anyorder" submit --run-dir "$odd" --config "$here/tiny.toml" --set data.shards="$shards" >out 2>err; expect_status $? 0 "an odd name: $(cat err)"
  check_script "$odd/slurm/train.sbatch"
  has "^#SBATCH --output=\".*a b'c\$(d)%%j#/slurm/job-%j.log\"$" "$odd/slurm/train.sbatch"
  "$bin/anyorder" submit --run-dir $'new\nline' --config "$here/tiny.toml" --set data.shards="$shards" >out 2>err; expect_status $? 64 "a line break"
  one_line ;;

jobs)
  submit 0
  # A job of the run that waits or runs: named, with the ways out.
  job 101 PENDING
  submit 64; one_line; has "job 101 of this run is PENDING.*scancel 101.*--after 101" err
  job 101 RUNNING
  submit 64; has "RUNNING" err
  submit 0 --after 101; has "\[--dependency=afterany:101\]" fake/calls
  job 102 PENDING
  submit 64 --after 101; has "job 102" err  # two jobs must not wait for the same end
  job 101 COMPLETED; job 102 CANCELLED
  submit 0 --after 77; has "\[--dependency=afterok:77\] \[--kill-on-invalid-dep=yes\]" fake/calls
  # Where the job before makes the dataset, it need not be there.
  rm -rf run; rm -f fake/job-*
  submit 64 --set data.shards="$work/later"
  submit 0 --set data.shards="$work/later" --after 77; has "note: data.shards '$work/later' holds no dataset yet; job 77" err
  # Slurm's refusals are told in its words, and leave nothing behind.
  rm -rf run
  echo "$(($(cat fake/last) + 1)):sbatch: error: Batch job submission failed: Invalid partition name specified" >fake/refusal
  submit 64 --partition nowhere; one_line; has "sbatch refused the job: .*Invalid partition" err
  [ ! -e run ] || fail "left behind: $(find run)"
  echo "$(($(cat fake/last) + 1)):sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >fake/refusal
  submit 74; has "cannot reach Slurm" err
  [ ! -e run ] || fail "left behind: $(find run)"
  # What an earlier submission wrote stays as it was.
  rm fake/refusal; submit 0
  before=$(find run -type f | sort | xargs md5sum)
  job "$(cat fake/last)" COMPLETED
  echo "$(($(cat fake/last) + 1)):sbatch: error: Batch job submission failed: Invalid account" >fake/refusal
  steps=40 submit 64 --account nobody
  [ "$before" = "$(find run -type f | sort | xargs md5sum)" ] || fail "a refused submit changed the run" ;;

budget)
  # ledger SECONDS...: adds a commit for each, after which a stop takes so long.
  ledger() {
    PYTHONPATH=$here python3 - "$@" >>run/ledger.jsonl <<'END'
import sys
from make_run import crc32c
for seconds in sys.argv[1:]:
    body = '{"event":"commit","time":"2026-01-01T00:00:00.000Z","attempt":1,"step":300,"generation":1,"stop_seconds":' + seconds
    print('%s,"crc32c":"%08x"}' % (body, crc32c(body.encode())))
END
  }
  cp -r ../reference run  # its own stops take less than the least that is asked for
  steps=300
  has '"stop_seconds":[1-9]' run/ledger.jsonl
  submit 0 --dry-run; has "USR1@60" out
  ledger 200 301
  submit 0 --dry-run; has "USR1@301" out
  submit 0 --dry-run --signal-seconds 250; has "USR1@250" out; has "note: --signal-seconds 250 is less than the 301 s" err
  submit 64 --dry-run --time 5; has "not longer than the 301 s" err
  ledger 2
  submit 0 --dry-run; has "USR1@60" out ;;

ends)
  # The script itself, with a launcher that ends as it is told: what it does next.
  submit 0
  launcher=$work/anyorder
  cat >"$launcher" <<'END'
#!/usr/bin/env bash
# Like the real one it takes a moment to stop, in which a second signal would be another wish.
left=8000
trap 'echo usr1 >>"$FAKE_SLURM/launcher"; left=8' USR1
trap 'echo term >>"$FAKE_SLURM/launcher"; left=8' TERM
echo $$ >"$FAKE_SLURM/launcher-pid"
echo ready >"$FAKE_SLURM/launcher"
[ -f "$FAKE_SLURM/end" ] && exit "$(cat "$FAKE_SLURM/end")"
[ -f "$FAKE_SLURM/kill" ] && kill -KILL $$
while [ $left -gt 0 ]; do sleep 0.05; left=$((left - 1)); done
exit 75
END
  chmod +x "$launcher"
  sed "s|^anyorder=.*|anyorder=$launcher|" run/slurm/train.sbatch >job.sbatch
  export SLURM_JOB_ID=101 SLURM_JOB_NODELIST=n1
  # run_job STATUS [SIGNAL...]: the script, with signals once the launcher listens.
  run_job() {
    local expected=$1 signal; shift
    rm -f fake/launcher; : >fake/calls
    bash job.sbatch >job.log 2>&1 & local script=$!
    if [ $# -gt 0 ]; then for i in $(seq 8000); do [ -s fake/launcher ] && break; sleep 0.05; done; fi
    for signal in "$@"; do
      kill -"$signal" $script
      # Slurm sends TERM to every process of the job; here not in the same instant, where two are
      # one. The script may still have another child (its watch of the node), so the launcher says
      # who it is.
      sleep 0.1
      [ "$signal" = TERM ] && kill -TERM "$(cat fake/launcher-pid)" 2>/dev/null
    done
    wait $script; expect_status $? "$expected" "the job's script after '$*': $(cat job.log)"
  }
  requeued() { grep -q "scontrol \[requeue\] \[101\]" fake/calls; }
  for end in 0 64 65 70 74 93; do
    echo $end >fake/end; run_job $end; ! requeued || fail "requeued after $end"
  done
  echo 75 >fake/end; run_job 75; requeued || fail "not requeued after 75"
  rm fake/end
  run_job 75 USR1; requeued || fail "not requeued after the warning"; has usr1 fake/launcher
  # Cancelled or preempted: Slurm has decided. After the time limit nobody has.
  echo None >fake/reason; run_job 75 TERM; ! requeued || fail "a cancelled job came back"
  [ "$(grep -c . fake/launcher)" -eq 2 ] || fail "not one TERM reached the launcher: $(cat fake/launcher)"
  echo TimeLimit >fake/reason; run_job 75 TERM; requeued || fail "not requeued after the time limit"
  # A signal that comes while the environment is prepared is not lost.
  echo 'touch "$FAKE_SLURM/preparing"; sleep 1' >run/slurm/environment.sh
  run_early() {
    rm -f fake/preparing fake/launcher; : >fake/calls
    bash job.sbatch >job.log 2>&1 & local script=$!
    until [ -e fake/preparing ]; do sleep 0.02; done
    kill -"$1" $script; wait $script; expect_status $? 75 "an early $1: $(cat job.log)"
    [ ! -e fake/launcher ] || fail "a job that was told to end began to train"
  }
  run_early USR1; requeued || fail "not requeued after an early warning"
  echo None >fake/reason; run_early TERM; ! requeued || fail "a job that was cancelled early came back"
  rm run/slurm/environment.sh
  # A killed launcher gets three more tries, a stop with a checkpoint in between a new count.
  touch fake/kill
  for try in 1 2; do run_job 75; requeued || fail "not requeued after kill $try"; done
  rm fake/kill; run_job 75 USR1; touch fake/kill
  for try in 1 2 3; do run_job 75; requeued || fail "not requeued after kill $try"; done
  run_job 137; ! requeued || fail "requeued for ever"; has "killed four times" job.log
  # A site that requeues by exit status.
  rm fake/kill run/slurm/*.kills
  submit 0 --requeue-exit 85 --dry-run
  sed "s|^anyorder=.*|anyorder=$launcher|" out >job.sbatch
  run_job 85 USR1; ! requeued || fail "requeued twice"
;;

environment)
  # The job sources a file that nobody else can write, and no other.
  submit 0
  sed "s|^anyorder=.*|anyorder=true|" run/slurm/train.sbatch >job.sbatch
  run_job() {
    SLURM_JOB_ID=101 SLURM_JOB_NODELIST=n1 bash job.sbatch >job.log 2>&1
    expect_status $? "$1" "the job's script: $(cat job.log)"
  }
  file=$work/run/slurm/environment.sh
  echo 'echo "modules are here"' >$file; chmod 644 $file; run_job 0; has "modules are here" job.log
  # refuses TEXT: by the submission and by the job; mended again by COMMAND...
  refuses() {
    local text=$1; shift
    submit 64 --dry-run; one_line; has "is not sourced: .*$text" err
    run_job 64; has "is not sourced: .*$text" job.log; has_not "modules are here" job.log
    "$@" && submit 0 --dry-run
  }
  chmod o+w $file; refuses "environment.sh' may be written by every user (mode 646)" chmod o-w $file
  chmod 777 run/slurm; refuses "run/slurm' may be written by every user (mode 777)" chmod 755 run/slurm
  mv $file there.sh; ln -s "$work/there.sh" $file; chmod 666 there.sh
  refuses "there.sh' may be written by every user" chmod 644 there.sh
  rm $file; mv there.sh $file
  # In a directory with the sticky bit nobody else can replace it.
  chmod 1777 run/slurm; run_job 0; has "modules are here" job.log
  if [ "$(id -u)" -eq 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups true; then
    chgrp 65534 $file; chmod g+w $file; refuses "may be written by group [^ ]* (mode 664)" chmod g-w $file
    # But he can be the first to put one there.
    mv $file kept.sh; install -m 644 -o 65534 kept.sh $file; refuses "environment.sh' belongs to [^ ]*, who may change it" rm $file
  fi
  submit 0 --dry-run
  # Of prep, too.
  mkdir -p out.shards.slurm; echo "echo planted" >out.shards.slurm/environment.sh; chmod 666 out.shards.slurm/environment.sh
  "$bin/anyorder" prep --input "$shards/../corpus.txt" --output out.shards --vocab-size 300 --slurm 2 --dry-run >out 2>err
  expect_status $? 64 "prep"; has "out.shards.slurm/environment.sh' is not sourced" err ;;

prep)
  cp ../corpus.txt .
  prep() {
    local expected=$1; shift
    "$bin/anyorder" prep --input corpus.txt --output out.shards --vocab-size 300 --no-filter "$@" >out 2>err
    expect_status $? "$expected" "prep $*: $(cat err)"
  }
  prep 0 --slurm 3 --quiet -- --time=5 -p debug
  [ "$(cat out)" = 103 ] || fail "stdout is not the number of the merge: $(cat out)"
  check_script out.shards.slurm/prep.sbatch
  has "anyorder-prep --input corpus.txt --output out.shards --vocab-size 300 --no-filter --quiet --workers" out.shards.slurm/prep.sbatch
  has "^#SBATCH --time=5$" out.shards.slurm/prep.sbatch
  has "sbatch .*\[--array=1-3\] \[--dependency=afterok:101\] .*\[slice\]" fake/calls
  has "sbatch .*\[--dependency=afterany:102\] .*\[merge\]" fake/calls
  has "anyorder submit --after 103" err
  # The script's three parts, run by hand as Slurm would.
  for part in plan "1 slice" "3 slice" "2 slice" merge; do
    set -- $part
    SLURM_ARRAY_TASK_ID=$1 bash out.shards.slurm/prep.sbatch "${2:-$1}" >part.log 2>&1; expect_status $? 0 "$part: $(cat part.log)"
  done
  "$bin/anyorder" prep --input corpus.txt --output alone --vocab-size 300 --no-filter >out 2>&1 || fail "prep alone"
  diff -r alone out.shards || fail "three tasks made other bytes than one program"
  # What is wrong is said before anything is submitted.
  : >fake/calls
  prep 64 --slurm 3; has "not empty" err
  rm -rf out.shards out.shards.slurm
  prep 64 --slurm 0; prep 64 --slurm 2 --plan; prep 64 --dry-run; prep 64 -- --time=5
  mv corpus.txt away.txt; prep 64 --slurm 2; mv away.txt corpus.txt
  has_not sbatch fake/calls; [ ! -e out.shards.slurm ] || fail "something was written"
  prep 0 --slurm 2 --dry-run; check_script out; has_not sbatch fake/calls; [ ! -e out.shards.slurm ] || fail "a dry run wrote"
  # A refusal of the second job takes back the first.
  echo "105:sbatch: error: Invalid job array specification" >fake/refusal
  prep 64 --slurm 2; has "Invalid job array" err; has "scancel \[104\]" fake/calls ;;

*) fail "no case '$3'" ;;
esac
