#!/usr/bin/env bash
# `anyorder seeds`: several runs in one command, stopped, killed and repeated.
#
# Usage: seeds.sh BIN_DIR WORK_DIR CASE        after `case.sh ... prepare`, on its dataset
#   table    median and spread are those of the best lines of metrics.jsonl; what is refused; a seed
#            that fails does not hide the others
#   stopped  Ctrl-C in the first run, and the same command again: each run ends as without a stop,
#            and what is finished is not run again
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "seeds_$3"
. "$here/tiny_run.sh"

config=(--config "$here/tiny.toml" --set data.shards="$work/shards" --set cpu.threads=1)
held_out=(--set eval.shards="$work/other-shards" --set eval.every=10 --set eval.batches=1 --set checkpoint.every=10)
seeds() { "$anyorder" seeds "$work/$name/run" "$@"; }

# check_json FILE SEED...: the runs in this order, and their figures from their own files.
check_json() {
  python3 - "$@" <<'PYTHON' || fail "the report: $(cat "$1")"
import json, pathlib, statistics, sys
report = json.load(open(sys.argv[1]))
assert [run["seed"] for run in report["runs"]] == [int(seed) for seed in sys.argv[2:]], report
assert report["metric"] == "loss" and report["lower_is_better"], report
values = []
for run in report["runs"]:
    lines = [json.loads(line) for line in open(pathlib.Path(run["run_dir"]) / "metrics.jsonl")]
    best = min((line for line in lines if "eval_loss" in line), key=lambda line: line["eval_loss"])
    assert (run["best_value"], run["best_step"]) == (best["eval_loss"], best["step"]), run
    assert run["state"] == "finished" and "error" not in run, run
    values.append(best["eval_loss"])
assert report["finished"] == len(values) and len(set(values)) == len(values), report
for key, expected in (("median", statistics.median(values)), ("mean", statistics.mean(values)), ("min", min(values)),
                      ("max", max(values)), ("standard_deviation", statistics.stdev(values))):
    assert abs(report[key] - expected) < 1e-12, (key, report[key], expected)
PYTHON
}

case $3 in
table)
  refused() { expect_refused_in_a_line 64 "$1" seeds "${@:2}"; }
  refused "there is no run '.*/run-seedN'; name seeds with --seeds" "${config[@]}"
  expect_refused_in_a_line 64 "there is no run '$name/run-seedN'" "$anyorder" seeds $name/run/. --config "$here/tiny.toml"
  refused "eval.every is 0: runs are compared by their evaluations" "${config[@]}" --seeds 1,2
  refused "--seeds names 2 twice" "${config[@]}" "${held_out[@]}" --seeds 2,1,2
  refused "--set train.seed = 5 is of one run" "${config[@]}" "${held_out[@]}" --seeds 2 --set "train.seed = 5"
  refused "run-seed1: eval.metric is \"accuracy\", but an evaluation of permutation_lm has loss, " \
    "${config[@]}" "${held_out[@]}" --seeds 1 --set eval.metric=accuracy
  mkdir $name/run-seed2 && touch $name/run-seed2/precious
  refused "run-seed2' holds 'precious' and no run" "${config[@]}" "${held_out[@]}" --seeds 1,2
  [ ! -e $name/run-seed1 ] || fail "a run was started though another is refused"
  rm -r $name/run-seed2
  small=("${config[@]}" "${held_out[@]}" --set train.steps=30)
  seeds "${small[@]}" --seeds 3,1,2 --ranks 2 --json >$name/json 2>$name/log; expect_status $? 0 "three seeds"
  check_json $name/json 3 1 2
  for seed in 1 2 3; do
    [ "$(setting train seed $name/run-seed$seed/config.toml)" = $seed ] || fail "run $seed has another seed"
  done
  # The table again, with nothing to do.
  seeds >$name/table 2>$name/log; expect_status $? 0 "the table again"
  [ "$(sed -n 's/^ *\([0-9]*\)  finished .*/\1/p' $name/table | tr '\n' ' ')" = "1 2 3 " ] || fail "the table: $(cat $name/table)"
  expect_text "^loss (lower is better) of 3 finished runs: median [0-9.]*, mean .*, standard deviation " $name/table
  [ "$(starts $name/run-seed1)" -eq 1 ] || fail "a finished run was run again"
  # Another configuration is another run.
  refused "train.steps" "${small[@]}" --seeds 1,2,3 --set train.steps=40
  # A seed that fails: the others are done, and it is named with its log.
  seeds "${small[@]}" --seeds 4,1 -- --resume required >$name/table 2>$name/log; expect_status $? 65 "a seed that fails"
  expect_text "^ *4  failed  *-  *-  " $name/table
  expect_text "^ *1  finished  *[0-9.]*  " $name/table
  expect_text "of 1 finished run: median" $name/table
  expect_text "^seed 4 failed: its launch was refused with status 65, for the reason that it printed$" $name/table
  expect_text "nothing is committed\|no committed checkpoint\|--resume required" $name/log ;;

stopped)
  many=("${config[@]}" "${held_out[@]}" --set train.steps=400 --set eval.every=50)
  # The program itself in $job; a shell lets what it puts into the background ignore Ctrl-C.
  start_seeds() {
    env --default-signal=INT "$anyorder" seeds "$work/$name/run" "${many[@]}" --seeds 7,8 >$name/table 2>$name/log & job=$!
  }
  succeeds "$anyorder" launch "$work/$name/whole" "${many[@]}" --set train.seed=7
  start_seeds
  await has_commit $name/run-seed7
  kill -INT $job
  wait $job; expect_status $? 75 "after a stop"
  expect_text "seeds.* stopped; the same command goes on: .*anyorder seeds .*--seeds 7,8" $name/log
  expect_text "^ *7  stopped " $name/table
  expect_text "^ *8  not started " $name/table
  expect_text "of 0 finished runs$" $name/table
  expect_saved_where_it_stopped $name/run-seed7
  [ ! -e $name/run-seed8 ] || fail "the next seed was started after the stop"
  # Killed without a word: the run saves, too.
  start_seeds
  await grep -qs '"event":"train".*"attempt":2' $name/run-seed7/ledger.jsonl
  kill -9 $job
  wait $job 2>/dev/null
  ended() { [ "$("$anyorder" status $name/run-seed7 --json 2>/dev/null | grep -c '"state":"running"\|"state": "running"')" -eq 0 ]; }
  await ended
  seeds "${many[@]}" --seeds 7,8 --json >$name/json 2>$name/log; expect_status $? 0 "the same command again"
  check_json $name/json 7 8
  expect_nothing_redone $name/run-seed7
  [ "$(digest $name/run-seed7)" = "$(digest $name/whole)" ] || fail "stops changed the run"
  before=$(starts $name/run-seed7)
  seeds "${many[@]}" --seeds 7,8 --json >$name/again 2>$name/log; expect_status $? 0 "nothing to do"
  [ "$(starts $name/run-seed7)" -eq "$before" ] && [ "$(starts $name/run-seed8)" -eq 1 ] || fail "a finished run was run again"
  check_json $name/again 7 8 ;;

*) fail "no such case" ;;
esac
echo "$name: passed"
