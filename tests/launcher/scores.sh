#!/usr/bin/env bash
# `anyorder score`, and what `anyorder predict` makes of official files.
#
# Usage: scores.sh BIN_DIR WORK_DIR CASE
#   files      metrics of official files, examples, ensembles and runs; submissions; what is
#              refused, with status and place
#   predicted  a tiny classifier on SST-2's form: predictions and submission of official files have
#              the same score
#   regression own examples with scores, from prep to score
#   answers    questions of SQuAD that training leaves out are predicted, sent and scored
. "$(dirname "$0")/checks.sh"
. "$here/sentences.sh"
begin "$1" "$2" "scores_$3"
cd "$name" && name=. || exit 1

# metric NAME ARGUMENT...: its value, as `score --json` prints it.
metric() {
  local metric=$1; shift
  "$anyorder" score "$@" --json >out.json 2>err || fail "exit status $? of: score $*"
  python3 -c 'import json, sys; print(json.load(open("out.json"))["results"][-1]["metrics"][sys.argv[1]])' "$metric"
}
# expect METRIC VALUE ARGUMENT...
expect() {
  local value; value=$(metric "$1" "${@:3}") || exit 1
  [ "$value" = "$2" ] || fail "$1 is $value, not $2, of: score ${*:3}"
}
refuses() { expect_refused_in_a_line "$1" "$2" "$anyorder" score "${@:3}"; }

files() {
  # SST-2's dev.tsv has no identifiers, its test.tsv an index and no labels.
  printf 'sentence\tlabel\ngood\t1\nbad\t0\nfine\t1\nawful\t0\n' >dev.tsv
  printf 'index\tsentence\n0\tgood\n1\tbad\n2\tfine\n3\tawful\n' >test.tsv
  line() { echo "{\"example\":$1,\"label\":\"\",\"probabilities\":{\"0\":$2,\"1\":$3}}"; }
  { line 1 0.1 0.9; line 2 0.6 0.4; line 3 0.8 0.2; line 4 0.9 0.1; } >a.jsonl
  { line 4 0.8 0.2; line 3 0.1 0.9; line 2 0.3 0.7; line 1 0.7 0.3; } >b.jsonl
  expect accuracy 0.75 --task sst2 --gold dev.tsv --predictions a.jsonl
  expect accuracy 0.5 --task sst2 --gold dev.tsv --predictions b.jsonl
  expect accuracy 0.75 --task sst2 --gold dev.tsv --predictions a.jsonl b.jsonl
  "$anyorder" score --task sst2 --gold dev.tsv --predictions a.jsonl >out || fail "a table"
  expect_text "^accuracy  *75.0000 %" out
  # What is sent has the same score, and is made without labels, too.
  expect accuracy 0.75 --task sst2 --gold dev.tsv --predictions a.jsonl b.jsonl --write-submission sent
  expect accuracy 0.75 --task sst2 --gold dev.tsv --predictions sent/SST-2.tsv
  succeeds "$anyorder" score --task sst2 --gold test.tsv --predictions a.jsonl --predictions b.jsonl --write-submission blind
  cmp blind/SST-2.tsv sent/SST-2.tsv || fail "another submission without labels"
  [ "$(cat sent/SST-2.tsv | tr '\t\n' ',;')" = "index,prediction;0,1;1,1;2,1;3,0;" ] || fail "$(cat sent/SST-2.tsv)"
  # Two gold files, the predictions of each in their order.
  expect accuracy 0.5 --task sst2 --gold dev.tsv dev.tsv --predictions a.jsonl b.jsonl
  # Labelled examples with fields of other names have general metrics.
  sed 's/label/class/' dev.tsv >own.tsv
  expect macro_f1 0.7333333333333334 --gold own.tsv --text-field sentence --field label=class --predictions a.jsonl

  # A row without a label that annotators agreed on is predicted, but does not count.
  mnli() { printf '%s\tp\tp\tg\tb\tb\tp\tp\ta\tb\tl\t%s\n' "$1" "$2"; }
  { printf 'index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n'
    mnli 0 neutral; mnli 1 -; mnli 2 entailment; } >dev_matched.tsv
  for i in 0 1 2; do echo "{\"example\":$((i + 1)),\"id\":\"$i\",\"probabilities\":{\"neutral\":0.9,\"entailment\":0.1}}"; done >mnli.jsonl
  expect accuracy_matched 0.5 --task mnli --gold dev_matched.tsv --predictions mnli.jsonl
  grep -q '"examples": *2,' out.json || fail "a row too many counts: $(cat out.json)"

  # Ranking: row 4 stands alone, and 2 and 3 have nothing to compare.
  printf 'index\tquestion\tsentence\tlabel\n0\tp\ta\tentailment\n1\tp\tb\tnot_entailment\n2\tq\ta\tnot_entailment\n3\tq\tb\tnot_entailment\n4\tr\ta\tentailment\n' >qnli.tsv
  echo '{"example":1,"id":"0,1","label":0,"probabilities":[0.7,0.3]}' >ranked.jsonl
  expect accuracy 0.8 --task qnli-rank --gold qnli.tsv --predictions ranked.jsonl --write-submission sent
  expect accuracy 0.8 --task qnli --gold qnli.tsv --predictions sent/QNLI.tsv

  mkdir -p RACE/high RACE/middle
  echo '{"article": "x", "id": "high1.txt", "questions": ["a", "b"], "options": [["a","b","c","d"],["a","b","c","d"]], "answers": ["A","C"]}' >RACE/high/1.txt
  echo '{"article": "x", "id": "middle1.txt", "questions": ["a"], "options": [["a","b","c","d"]], "answers": ["D"]}' >RACE/middle/1.txt
  printf 'id\tprediction\nhigh/high1.txt#0\tA\nmiddle/middle1.txt#0\tD\nhigh/high1.txt#1\tB\n' >race.tsv
  expect accuracy_high 0.5 --task race --gold RACE --predictions race.tsv
  expect accuracy_middle 1.0 --task race --gold RACE --predictions race.tsv

  echo '{"version":"v2.0","data":[{"paragraphs":[{"context":"x","qas":[
    {"id":"q1","question":"?","is_impossible":false,"answers":[{"text":"the red car","answer_start":0}]},
    {"id":"q2","question":"?","is_impossible":true,"answers":[]}]}]}]}' >squad.json
  answers() { echo "{\"example\":$1,\"id\":\"$2\",\"answer\":\"$3\",\"answers\":[{\"text\":\"$3\",\"log_probability\":$4}],\"null_score\":$5}"; }
  { answers 1 q1 "red car" -0.5 -1; answers 2 q2 "car" -0.5 3; } >squad.jsonl
  expect exact 50.0 --task squad2 --gold squad.json --predictions squad.jsonl
  expect exact 100.0 --task squad2 --gold squad.json --predictions squad.jsonl --null-threshold 0
  expect best_f1_thresh -1.0 --task squad2 --gold squad.json --predictions squad.jsonl --null-threshold 0 --write-submission sent
  expect exact 100.0 --task squad2 --gold squad.json --predictions sent/predictions.json
  expect best_exact 100.0 --task squad2 --gold squad.json --predictions sent/predictions.json --null-odds sent/null_odds.json

  # What nobody knows is not "no answer", in any form of gold.
  sed 's/,"answers":\[[^]]*\]//' squad.json >blind.json
  echo '{"question":"?","passage":"the red car","id":"q1"}' >blind.jsonl
  grep q1 squad.jsonl >one.jsonl
  refuses 65 "blind.json: question q1: there is no label to score by" --task squad2 --gold blind.json --predictions squad.jsonl
  refuses 65 "blind.jsonl:1: there is no label to score by" --gold blind.jsonl --predictions one.jsonl
  sed 's/"is_impossible":true/"is_impossible":false/' squad.json >odd.json
  refuses 65 "odd.json: question q2: the question has 0 answers" --task squad2 --gold odd.json --predictions squad.jsonl
  succeeds "$anyorder" score --task squad2 --gold blind.json --predictions squad.jsonl --write-submission blind
  grep -q '"q2": "car"' blind/predictions.json || fail "$(cat blind/predictions.json)"

  printf '51 0 d1 2\n51 0 d2 0\n' >qrels
  printf '51 Q0 d2 1 5 a\n51 Q0 d1 2 1 a\n' >run.txt
  printf '51 Q0 d2 1 0 b\n51 Q0 d1 2 9 b\n' >other.txt
  expect err@20 0.09375 --task trec --gold qrels --predictions run.txt
  expect err@20 0.1875 --task trec --gold qrels --predictions run.txt other.txt --write-submission sent
  expect ndcg@20 1.0 --task trec --gold qrels --predictions sent/run.txt

  # Whatever the gold file is, and with the option that this command has.
  for gold in dev.tsv blind.jsonl; do
    refuses 64 "is not a task whose files are known.* leave --task out.* trec" --task classification --gold $gold --predictions a.jsonl
  done
  refuses 64 "SST-2.tsv' exists and is not overwritten" --task sst2 --gold dev.tsv --predictions a.jsonl --write-submission sent
  refuses 64 "names 1 files, but --gold 2" --task sst2 --gold dev.tsv dev.tsv --predictions a.jsonl
  refuses 65 "test.tsv:2: there is no label to score by" --task sst2 --gold test.tsv --predictions a.jsonl
  head -n 1 a.jsonl >short.jsonl
  refuses 65 "3 of 4 examples of 'dev.tsv' have no prediction: 2, 3, 4" --task sst2 --gold dev.tsv --predictions short.jsonl
  { cat a.jsonl; echo '{"example":5'; } >bad.jsonl
  refuses 65 "bad.jsonl:5: not valid JSON" --task sst2 --gold dev.tsv --predictions bad.jsonl
  printf 'sentence\tlabel\ngood\t2\n' >bad.tsv
  refuses 65 "bad.tsv:2: the label '2' is none of 0, 1" --task sst2 --gold bad.tsv --predictions a.jsonl
  echo '{"data":[{"paragraphs":[{"qas":[{"id":7}]}]}]}' >bad.json
  refuses 65 "bad.json: data\[0\]: paragraphs\[0\]: qas\[0\]: the question has no 'id'" --task squad2 --gold bad.json --predictions squad.jsonl
  refuses 65 "dev.tsv:1: the line has 2 columns" --task trec --gold dev.tsv --predictions run.txt
}

predicted() {
  python3 - <<'PYTHON' || fail "no examples"
import random
words = "red blue green white".split(), "one two three four".split()
def text(draw, kind):
    return " ".join(draw.choice(words[kind]) for _ in range(draw.randint(3, 9)))
for part, count in ("train", 300), ("dev", 60):
    draw = random.Random(part)
    rows = [(text(draw, i % 2), i % 2) for i in range(count)]
    open(f"{part}.tsv", "w").write("sentence\tlabel\n" + "".join(f"{t}\t{label}\n" for t, label in rows))
open("test.tsv", "w").write("index\tsentence\n" + "".join(f"{i + 7}\t{t}\n" for i, (t, _) in enumerate(rows)))
open("text.txt", "w").write("".join(t + "\n" for t, _ in rows) * 20)
PYTHON
  prep --input text.txt --output shards --vocab-size 40
  succeeds "$anyorder" prep --task sst2 --input train.tsv --vocab shards/spiece.model --output train
  train finetune/gpt-classify-tiny.toml run data.shards=train objective.num_classes=2 train.steps=40 checkpoint.every=0 sampling.seq_len=32 \
    train.global_batch_size=16 train.micro_batch_size=4 optimizer.warmup_steps=2
  succeeds "$anyorder" predict run --task sst2 --data dev.tsv --output dev.jsonl --write-submission sent
  # What this command lacks is no remedy.
  printf 'sentence\tlabel\n\xff\t1\n' >latin.tsv
  "$anyorder" predict run --task sst2 --data latin.tsv --output latin.jsonl 2>err && fail "invalid UTF-8 is read"
  expect_text "invalid UTF-8" err
  ! grep -q -e --invalid-utf8 err || fail "predict has no such option: $(cat err)"
  local accuracy; accuracy=$(metric accuracy --task sst2 --gold dev.tsv --predictions dev.jsonl) || exit 1
  python3 -c 'import sys; sys.exit(float(sys.argv[1]) < 0.9)' "$accuracy" || fail "accuracy $accuracy"
  expect accuracy "$accuracy" --task sst2 --gold dev.tsv --predictions sent/SST-2.tsv
  # Test data have identifiers, which lines and submissions have, too.
  succeeds "$anyorder" predict run --task sst2 --data test.tsv --output test.jsonl --write-submission test
  [ "$(sed -n 's/^{"example":60,"id":"\([0-9]*\)".*/\1/p' test.jsonl)" = 66 ] || fail "another identifier: $(tail -n 1 test.jsonl)"
  [ "$(cut -f 2 test/SST-2.tsv)" = "$(cut -f 2 sent/SST-2.tsv)" ] && expect_text "^66	" test/SST-2.tsv
  # A dataset knows its task, and has the labels.
  succeeds "$anyorder" prep --task sst2 --input dev.tsv --vocab shards/spiece.model --output dev
  succeeds "$anyorder" predict run --data dev --write-submission again
  cmp again/SST-2.tsv sent/SST-2.tsv || fail "another submission of the dataset"
  expect accuracy "$accuracy" --gold dev --predictions dev.jsonl
  local refused="$anyorder predict run"
  expect_refused_in_a_line 64 "SST-2.tsv' exists and is not overwritten" $refused --data dev --write-submission sent
  expect_refused_in_a_line 64 "name it with --task" $refused --data dev.tsv --text-field sentence --write-submission new
  expect_refused_in_a_line 64 "task is about official files" $refused --task sst2 --text red
  expect_refused_in_a_line 65 "dev.tsv:1: the header" $refused --task wnli --data dev.tsv --output new
  [ ! -e new ] || fail "something is left behind"
}

regression() {
  python3 - <<'PYTHON' || fail "no examples"
import json, random
words = "bad poor fair good".split()
def rows(part, count):
    draw = random.Random(part)
    for _ in range(count):
        grades = [draw.randrange(4) for _ in range(4)]
        yield " ".join(words[g] for g in grades), sum(grades) / 4
open("train.csv", "w").write("text,label\n" + "".join(f"{t}, {s}\n" for t, s in rows("train", 400)))
# Whole numbers alone: the training data say that they are scores.
open("dev.jsonl", "w").write("".join(json.dumps({"text": t, "label": float(round(s))}) + "\n" for t, s in rows("dev", 60)))
open("text.txt", "w").write("".join(t + "\n" for t, _ in rows("train", 400)) * 10)
PYTHON
  prep --input text.txt --output shards --vocab-size 34
  succeeds "$anyorder" prep --examples train.csv --vocab shards/spiece.model --output train
  succeeds "$anyorder" prep --examples dev.jsonl --labels-from train --vocab shards/spiece.model --output dev
  train finetune/gpt-classify-tiny.toml run data.shards=train objective.num_classes=1 train.steps=150 checkpoint.every=0 sampling.seq_len=32 \
    train.global_batch_size=16 train.micro_batch_size=4 optimizer.warmup_steps=2 eval.shards=dev eval.every=50
  succeeds "$anyorder" predict run --data dev.jsonl --output said.jsonl
  succeeds "$anyorder" predict run --text "good good fair good"
  "$anyorder" predict run --text "$(printf 'good %.0s' {1..40})" >out 2>err || fail "a long text: $(cat err)"
  expect_text "1 of 1 examples of '--text' are longer than sampling.seq_len=32 and are cut: " err
  local gold pearson
  for gold in dev.jsonl dev; do
    pearson=$(metric pearson --gold $gold --predictions said.jsonl) || exit 1
    python3 -c 'import sys; sys.exit(float(sys.argv[1]) < 0.5)' "$pearson" || fail "$gold: pearson $pearson"
  done
  expect_refused_in_a_line 65 "has 1 score a text but objective.num_classes is 2" "$anyorder" launch --run-dir other --ranks 1 \
    --config "$configs/finetune/gpt-classify-tiny.toml" --set data.shards=train --set objective.num_classes=2
}

answers() {
  python3 - <<'PYTHON' || fail "no questions"
import json
def question(name, text, start):
    return {"id": name, "question": "which " + name, "answers": [{"text": text, "answer_start": start}]}
passage = "the red car stands near the old blue house"
questions = [question("a", "red", 4), question("moved", "red", 5), question("b", "blue", 32)]
json.dump({"data": [{"paragraphs": [{"context": passage, "qas": questions}]}]}, open("dev.json", "w"))
open("text.txt", "w").write((passage + " which a b moved\n") * 50)
PYTHON
  prep --input text.txt --output shards --vocab-size 36
  "$anyorder" prep --task squad1 --input dev.json --vocab shards/spiece.model --output train >out 2>err || fail "$(cat err)"
  expect_text "question moved.*the answer 'red' is not at character 5 .*training leaves the question out" err
  train finetune/bert-span-tiny.toml run data.shards=train train.steps=2 checkpoint.every=0 sampling.passage_stride=4 sampling.max_question=8
  local data
  for data in dev.json train; do
    succeeds "$anyorder" predict run $([ $data = train ] || echo --task squad1) --data $data --output $data.jsonl --write-submission sent-$data
    [ "$(grep -c . $data.jsonl)" = 3 ] && grep -q '"moved"' sent-$data/predictions.json || fail "a question is missing: $(cat $data.jsonl)"
    expect total 3.0 --task squad1 --gold dev.json --predictions $data.jsonl
    expect total 3.0 --gold train --predictions $data.jsonl
  done
}

case $3 in
files | predicted | regression | answers) "$3" ;;
*) fail "no case '$3'" ;;
esac
