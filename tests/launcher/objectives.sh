#!/usr/bin/env bash
# Real runs of every registered objective, and of the ablation's configurations.
#
# Usage: objectives.sh BIN_DIR WORK_DIR CASE
#   complete         every objective that the program knows has a line in objectives.txt
#   text             makes the dataset of the next two, made-up text, and examples of generation
#                    from it: a line and how it begins
#   trains_NAME      60 steps on it, on 1 rank, and on 2 to 8 ranks that are killed and resumed on
#                    another number, end in one state with the same losses; export and eval know the
#                    result, and held-out text is predicted better than by guessing
#   words            a vocabulary of words with an adaptive softmax learns, too; cutoffs that the
#                    vocabulary cannot have are refused
#   predicted        classes of new examples by a classifier: files, datasets, texts on the command
#                    line; what is refused leaves nothing
#   ablations        every file in configs/ablation trains two steps on two ranks, on the dataset
#                    that `case.sh ... prepare` made
# Objectives named *_seq2seq and *_sft train on the examples instead, those with a task on labelled
# ones.
#
# To add an objective: a complete configs/NAME-tiny.toml and a line in objectives.txt, which names
# that file and, where they are needed, keys that differ: a variant worth a run of its own, or a
# size that must fit the small shape below. CMake makes the test of a line.
. "$(dirname "$0")/checks.sh"
configs=$here/../../configs
begin "$1" "$2" "$3"

# What every line runs with, instead of what its file says. Dropout is on: its masks must not depend
# on ranks, either.
small=(model.num_layers=2 model.model_dim=64 model.num_heads=2 model.head_dim=32 model.ffn_dim=128 model.dropout=0.1
  model.attention_dropout=0.1 sampling.seq_len=64 sampling.reuse_len=32 sampling.perm_size=32 sampling.num_predict=10
  train.global_batch_size=8 train.micro_batch_size=1 train.device=auto optimizer.warmup_steps=2 optimizer.bias_correction=true)

# Step and losses of every step, a line each: all that must not depend on ranks.
losses() {
  awk '{ line = ""
    while (match($0, /"(step|loss|loss_[a-z0-9_]+|nsp_loss|nsp_accuracy)":[^,}]*/)) {
      line = line substr($0, RSTART, RLENGTH) " "
      $0 = substr($0, RSTART + RLENGTH)
    }
    print line }' "$1/metrics.jsonl"
}

# compose LINE SHARDS [key=value...]: sets $command to the launch of that line of objectives.txt.
compose() {
  local line=$1 shards=$2 config keys key; shift 2
  read -r _ config keys < <(grep "^$line " "$here/objectives.txt") || fail "objectives.txt has no line '$line'"
  command=("$anyorder" launch --config "$configs/$config")
  for key in "${small[@]}" "data.shards=$shards" "$@" $keys; do
    # The sizes of sampling are for those objectives whose file has them: others refuse them.
    [[ $key != sampling.* || " $keys " == *" $key "* ]] || [ -n "$(setting sampling "$(sed 's/.*\.//; s/=.*//' <<<"$key")" "$configs/$config")" ] || continue
    command+=(--set "$key")
  done
}

# label_examples TASK SHARDS: examples whose labels a few words tell, and held-out ones.
label_examples() {
  local part
  python3 - "${1:-classification}" "$name" <<'PYTHON' || fail "no examples"
import json, random, sys
task, folder = sys.argv[1:]
words = ["north south east west", "red blue green white", "one two three four"]
kinds = [text.split() for text in words]
def text(draw, kind):
    return " ".join(draw.choice(kinds[kind]) for _ in range(draw.randint(3, 9)))
for part, count in [("training", 600), ("held-out", 100)]:
    draw = random.Random(part)
    with open(f"{folder}/{part}.jsonl", "w") as out:
        for i in range(count):
            label = draw.randrange(3)
            if task == "multiple_choice":
                context = draw.randrange(3)
                others = [kind for kind in range(3) if kind != context]
                choices = [text(draw, context if j == label else draw.choice(others)) for j in range(3)]
                example = {"context": text(draw, context), "choices": choices, "label": label}
            elif task == "similarity":
                example = {"a": text(draw, label), "b": text(draw, label if i % 2 else (label + 1) % 3), "label": i % 2}
            elif task == "span_extraction":
                # Runs of two kinds; the question names one of them, or the third.
                first, second = draw.sample(range(3), 2)
                runs = [text(draw, first), text(draw, second)]
                asked = [first, second, 3 - first - second][i % 3]
                answers = [] if i % 3 == 2 else [{"text": runs[i % 3], "start": 0 if i % 3 == 0 else len(runs[0]) + 1}]
                example = {"question": ["compass", "colour", "number"][asked], "passage": " ".join(runs), "answers": answers}
            elif task == "token_classification":
                # Runs, one after the other of another kind; numbers are no entities.
                order = [(label + k * (1 + i % 2)) % 3 for k in range(draw.randint(1, 3))]
                runs = [(["compass", "colour", "O"][kind], text(draw, kind).split()) for kind in order]
                tags = [kind if kind == "O" else ("I-" if at else "B-") + kind for kind, run in runs for at in range(len(run))]
                example = {"words": [word for _, run in runs for word in run], "tags": tags}
            else:
                example = {"text": text(draw, label), "label": ["compass", "colour", "number"][label]}
            out.write(json.dumps(example) + "\n")
PYTHON
  succeeds "$anyorder" prep --examples "$name/training.jsonl" --vocab "$2/spiece.model" \
    --output "$name/examples"
  part=(); [[ ${1:-classification} == @(multiple_choice|span_extraction) ]] || part=(--labels-from "$name/examples")
  succeeds "$anyorder" prep --examples "$name/held-out.jsonl" --vocab "$2/spiece.model" \
    --output "$name/examples-held-out" "${part[@]}"
}

# data_of LINE TRAINING HELD-OUT: sets $shards and $held_out to these, or to what the line's
# objective learns from.
data_of() {
  local config keys
  shards=$2 held_out=$3
  [[ $(setting objective name "$configs/$(awk -v line="$1" '$1 == line { print $2 }' "$here/objectives.txt")") != *_@(seq2seq|sft) ]] ||
    shards=$work/generation held_out=$work/generation-held-out
  read -r _ config keys < <(grep "^$1 " "$here/objectives.txt")
  grep -q '^task = ' "$configs/$config" || return 0
  # Labelled examples, of the task that the line names, by the vocabulary of the text.
  label_examples "$(sed -n 's/.*objective.task=\([a-z_]*\).*/\1/p' <<<" $keys")" "$2"
  shards=$work/$name/examples held_out=$work/$name/examples-held-out
}

complete() {
  local objective file covered=" "
  while read -r _ file _; do covered+="$(setting objective name "$configs/$file") "; done < <(grep '^[^#]' "$here/objectives.txt")
  "$anyorder" show --list >"$name/list" || fail "show --list"
  [ -s "$name/list" ] || fail "the program knows no objective"
  while read -r objective; do
    [[ $covered == *" $objective "* ]] || fail "objective '$objective' has no line in objectives.txt, so nothing is known of its runs; add one"
  done <"$name/list"
}

has_committed_or_ended() { has_commit "$1" || ! kill -0 "$2" 2>/dev/null; }
# Sets $ranks to another number than it was, and $drawn to settings of memory and traffic: each
# start has others, none of which may change a bit. 8 microbatches and 2 layers are those of $small.
draw() {
  local setting before=$ranks numbers=(2 3 4 8)
  while [ $ranks -eq $before ]; do ranks=${numbers[RANDOM % 4]}; done
  drawn=()
  for setting in $(python3 "$here/../faults/drawn_settings.py" $ranks 8 2); do drawn+=(--set "$setting"); done
  [ ${#drawn[@]} -gt 0 ] || fail "nothing was drawn"
  drawn+=(--ranks $ranks)
  echo "${drawn[*]}" >>"$name/settings"
}

# Kills the run with all that belongs to it once a checkpoint is there. Fails if it ended before.
kill_on_the_way() {
  rm -rf "$name/killed"
  draw
  "${command[@]}" "${drawn[@]}" --run-dir "$work/$name/killed" >"$name/log" 2>&1 &
  local job=$! ended=0
  await has_committed_or_ended "$name/killed" $job
  kill -0 $job 2>/dev/null || ended=1
  kill_all "$work/$name/killed " $job
  return $ended
}

trains() {
  local attempt ranks=1 shards held_out
  data_of "$1" "$work/prose" "$work/prose-held-out"
  compose "$1" "$shards" train.steps=60 checkpoint.every=20 optimizer.learning_rate=3e-3
  succeeds "${command[@]}" --run-dir "$name/run" --ranks 1
  [ -n "$(digest "$name/run")" ] || fail "no checkpoint"
  [ "$(losses "$name/run" | wc -l)" -eq "$(setting train steps "$name/run/config.toml")" ] || fail "not one line a step"
  # On a machine that is busy elsewhere the steps that are left may pass before a look at the
  # directory.
  for attempt in 1 2 3 4 5; do kill_on_the_way && break; done
  [ $? -eq 0 ] || fail "the run ended five times before it could be killed"
  draw
  "${command[@]}" "${drawn[@]}" --run-dir "$work/$name/killed" --resume required >>"$name/log" 2>&1 || fail "resuming: exit status $?"
  grep -q "$ranks ranks.*resuming after step" "$name/log" || fail "it did not resume"
  [ "$(digest "$name/killed")" = "$(digest "$name/run")" ] || fail "the run that changed ranks ends in another state, with $(tail -n 2 "$name/settings")"
  [ "$(losses "$name/killed")" = "$(losses "$name/run")" ] || fail "the run that changed ranks has other losses"
  exported "$name/run/config.toml"
  "$anyorder" eval --run-dir "$name/run" --data "$held_out" --batches 0 --json >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
  evaluated "$(setting objective next_sentence "$name/run/config.toml")"
  learned "$held_out"
  wrong_kind "$1" "$held_out"
}

# Every network's weights leave under the names of the checkpoint's table. XLNet's backbone travels
# on, and with it a head that there is. Another is refused in one line.
exported() {
  local config=$1 tensor head=0
  succeeds "$anyorder" export --run-dir "$name/run" --format safetensors --output "$name/weights"
  PYTHONPATH=$here/../ckpt python3 - "$name/weights/model.safetensors" "$(newest "$name/run")/MANIFEST.json" <<'PYTHON' || fail "the exported tensors are not the table's"
import json, sys
from read_safetensors import read
table = json.loads(json.load(open(sys.argv[2]))["metadata"])["parameters"]
header, _ = read(sys.argv[1])
header.pop("__metadata__")
assert {name: entry["shape"] for name, entry in header.items()} == {entry["name"]: entry["shape"] for entry in table}
PYTHON
  "$anyorder" export --run-dir "$name/run" --output "$name/hf" >"$name/log" 2>&1
  local status=$?
  if [[ " permutation_lm dae as_arm " != *" $(setting objective name "$config") "* ]]; then
    [ $status -eq 0 ] || { [ $status -eq 65 ] && [ "$(wc -l <"$name/log")" -eq 1 ] && [ ! -e "$name/hf" ]; } || fail "export: exit status $status"
    return
  fi
  [ $status -eq 0 ] || fail "export: exit status $status"
  for tensor in sequence_summary.summary.weight sequence_summary.summary.bias logits_proj.weight logits_proj.bias; do
    grep -aq "\"$tensor\"" "$name/hf/model.safetensors" && head=$((head + 1))
  done
  [ $head -eq $([ "$(setting objective next_sentence "$config")" = true ] && echo 4 || echo 0) ] || fail "$head of the head's tensors were exported"
}

# evaluated NEXT_SENTENCE: the report is whole, and of the head where there is one.
evaluated() {
  python3 - "$name/eval" "$1" <<'PYTHON' || fail "what eval says is wrong: $(cat "$name/eval")"
import json, math, sys
report = json.load(open(sys.argv[1]))
whole = report["losses"][0]
assert whole["targets"] > 0 and math.isfinite(whole["nats"]) and whole["nats"] > 0, whole
assert report["quantity"] and report["definition"]
# Examples that share a sequence, or are read in several, are not counted as if they were examples.
data = report["data"]
examples = json.load(open(data["path"] + "/dataset.json")).get("examples", {}).get("num_examples")
assert data.get("examples", examples) == examples, data
assert any(data.get(unit) == data.get(unit + "_scored", -1) for unit in ("tokens", "examples", "sequences")), data
terms = report.get("loss_terms", [])
assert all(term["targets"] > 0 and math.isfinite(term["nats"]) for term in terms), terms
if report["objective"] == "unilmv2":
    assert [term["part"] for term in terms] == ["ae", "par"]
    # Two means over the same tokens, unless some have no second loss.
    assert sum(term["targets"] for term in terms) == whole["targets"]
    assert terms[1]["targets"] < terms[0]["targets"] or abs(sum(term["nats"] for term in terms) - whole["nats"]) < 1e-9
assert ("next_sentence" in report) == (sys.argv[2] == "true")
if "next_sentence" in report:
    pairs = report["next_sentence"]
    # All samples, unless the objective has labels in one of its modes only.
    samples = whole["samples"]
    assert 0 < pairs["samples"] <= samples if "loss_terms" in report else pairs["samples"] == samples > 0, pairs
    # A head that learned for a few steps only is near a coin's ln 2.
    assert 0.3 < pairs["nats"] < 1.5 and 0 <= pairs["accuracy"] <= 1, pairs
    right = pairs["accuracy"] * pairs["samples"]
    assert abs(right - round(right)) < 1e-6, pairs
PYTHON
}

# Every eighth document is held out. The text is always the same, so a case's result changes only
# with the code.
text() {
  local part
  rm -rf prose prose-held-out
  python3 "$here/make_text.py" 1 800 3000 | awk -v RS= -v ORS='\n\n' -v to="$name" \
    '{ print > (to "/" (NR % 8 ? "training" : "held-out") ".txt") }' || fail "no text"
  prep --input "$name/training.txt" --output prose --vocab-size 800
  prep --input "$name/held-out.txt" --output prose-held-out --vocab prose/spiece.model
  rm -rf generation generation-held-out
  for part in training held-out; do
    python3 - "$name/$part" <<'PYTHON' || fail "examples"
import json, sys
with open(sys.argv[1] + ".jsonl", "w") as examples:
    for line in open(sys.argv[1] + ".txt"):
        words = line.split()
        if len(words) >= 8:
            print(json.dumps({"source": " ".join(words[:24]), "target": " ".join(words[:3])}), file=examples)
PYTHON
    succeeds "$anyorder" prep --examples "$name/$part.jsonl" --vocab prose/spiece.model \
      --output generation$([ $part = training ] || echo -held-out)
  done
}

# Held-out examples of as many classes, which prep numbered by themselves: their labels would mean
# something else.
other_classes() {
  sed 's/"colour"/"hue"/' "$name/held-out.jsonl" >"$name/hues.jsonl"
  succeeds "$anyorder" prep --examples "$name/hues.jsonl" --vocab "$work/prose/spiece.model" \
    --output "$name/hues"
  expect_refused_in_a_line 65 "hues' numbers its classes differently from the run's data.shards" \
    "$anyorder" eval --run-dir "$name/run" --data "$name/hues"
}

# wrong_kind LINE HELD_OUT: text for what learns from examples, and the reverse, is refused before
# anything is written.
wrong_kind() {
  local other=$work/generation says="has labelled examples of generation, but .* learns from plain text; set objective.name to gpt_sft, masked_diffusion_sft, unilm_seq2seq or unilmv2_seq2seq"
  [[ $2 != *examples* && $2 != */generation* ]] || other=$work/prose says="is plain text, but .* learns from labelled examples; make"
  compose "$1" "$other" train.steps=2
  expect_refused_in_a_line 65 "data.shards '$other': the dataset $says" "${command[@]}" --run-dir "$name/wrong" --ranks 1
  [ ! -e "$name/wrong/checkpoints" ] || fail "a run directory was made"
  expect_refused_in_a_line 65 "'$other': the dataset $says" "$anyorder" eval --run-dir "$name/run" --data "$other"
  # What the model of conversations knows of plain text can be asked.
  [ "$(setting objective name "$name/run/config.toml")" != gpt_sft ] ||
    succeeds "$anyorder" eval --run-dir "$name/run" --data "$other" --objective causal --batches 4
  compose "$1" "$shards" train.steps=2 eval.every=1 "eval.shards=$other"
  expect_refused_in_a_line 65 "eval.shards: the dataset $says" "${command[@]}" --run-dir "$name/wrong" --ranks 1
}

# told HELD_OUT: `predict` tells what `eval` counts, and `score` finds it as good. Answers are parts
# of their passages, with probabilities, and of one token if that is the limit.
told() {
  "$anyorder" predict "$name/run" --data "$1" --output "$name/told.jsonl" 2>"$name/log" || fail "predict: exit status $?"
  "$anyorder" score --gold "$1" --predictions "$name/told.jsonl" --json >"$name/score" 2>"$name/log" || fail "score: exit status $?"
  "$anyorder" predict "$name/run" --data "$1" --max-answer 1 --output "$name/short.jsonl" 2>"$name/log" || fail "predict --max-answer: exit status $?"
  python3 - "$name" "$1" <<'PYTHON' || fail "predict and score do not fit eval: $(cat "$name/score")"
import json, math, sys
name, held_out = sys.argv[1:]
scored = json.load(open(name + "/score"))["results"][0]["metrics"]
told = [json.loads(line) for line in open(name + "/told.jsonl")]
task = json.load(open(name + "/eval"))["task"]
print("predict and score:", scored)
if "best_f1" not in scored:
    for metric in ("accuracy", "f1") if "words" in task else ("accuracy",):
        assert abs(scored[metric] - task[metric]) < 1e-9, task
    sys.exit()
assert scored["best_f1"] > 50
sources = [json.loads(line) for line in open(held_out + "/sources.jsonl")]
def passage(i): return sources[i]["passage"] if "passage" in sources[i] else passage(sources[i]["passage_of"])
short = [json.loads(line) for line in open(name + "/short.jsonl")]
for one in told + short:
    for answer in one["answers"]:
        assert passage(one["example"] - 1)[answer["begin"]:answer["end"]] == answer["text"], answer
    assert sum(math.exp(answer["log_probability"]) for answer in one["answers"]) < 1 + 1e-9, one
assert all(" " not in answer["text"] for one in short for answer in one["answers"])
assert any(" " in answer["text"] for one in told for answer in one["answers"])
PYTHON
}

# learned HELD_OUT: $name/eval, of all of it, says so.
learned() {
  cp "$name/eval" "$name/eval-again"
  [[ $1 != */examples-held-out ]] || "$anyorder" eval --run-dir "$name/run" --data "$1" --batches 0 --batch-size 3 --json >"$name/eval-again" 2>"$name/log" || fail "eval --batch-size 3: exit status $?"
  ! grep -qs '"label": "colour"' "$name/held-out.jsonl" || other_classes
  ! grep -q '"task":' "$name/eval" || told "$1"
  python3 - "$name/eval" "$name/eval-again" <<'PYTHON' || fail "it learned nothing: $(cat "$name/eval")"
import json, math, sys
report = json.load(open(sys.argv[1]))
whole = report["losses"][0]
if "task" in report:
    # Every example counts once, whatever the lanes. Labels follow from the text; one of three by
    # guessing, as of spans by saying that there is none. Long passages are several windows.
    dataset = json.load(open(report["data"]["path"] + "/dataset.json"))
    is_spans = dataset["examples"]["task"] == "span_extraction"
    again = json.load(open(sys.argv[2]))["task"]
    assert again["accuracy"] == report["task"]["accuracy"] and abs(again["nats"] - report["task"]["nats"]) < 1e-4, again
    print("told right:", report["task"])
    assert report["task"]["accuracy"] > (0.5 if is_spans else 0.9)
    # A part of the answer is worth something, and what is right the most.
    assert not is_spans or report["task"]["accuracy"] <= report["task"]["f1"] <= 1
    if "words" in report["task"]:
        assert report["task"]["words"] > 500 and report["task"]["f1"] > 0.8
    else:
        assert report["task"]["examples"] >= 100 if is_spans else report["task"]["examples"] == 100
# Each of several losses by itself.
for row in report.get("loss_terms", [whole]):
    print(report["quantity"], row["part"], row["nats"], "+-", row["standard_error"])
    # A vocabulary of 800 by guessing: ln 800.
    assert row["nats"] + 3 * row["standard_error"] < math.log(800) - 0.3
PYTHON
}

# Words that occur once become <unk>.
words() {
  local bad
  prep --input text/training.txt --output "$name/shards" --vocab-type word --vocab-size 4000 --min-count 2
  prep --input text/held-out.txt --output "$name/other" --vocab "$name/shards/spiece.model"
  compose causal_words "$work/$name/shards" train.steps=150 optimizer.learning_rate=3e-3 checkpoint.every=0
  succeeds "${command[@]}" --set model.cutoffs=200,1000 --run-dir "$name/run" --ranks 2
  "$anyorder" eval --run-dir "$name/run" --data "$name/other" --objective causal --mem-len 64 --target-len 32 --same-length --batch-size 4 --json \
    >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
  python3 - "$name/eval" "$name/shards/dataset.json" <<'PYTHON' || fail "it learned nothing: $(cat "$name/eval")"
import json, math, sys
report, dataset = (json.load(open(path)) for path in sys.argv[1:])
print("words", dataset["vocab_size"], "perplexity", report["perplexity"], "nats", report["nats_per_token"], "+-", report["standard_error"])
assert 1000 < dataset["vocab_size"] <= 4000, "the clusters need words"
assert abs(math.log(report["perplexity"]) - report["nats_per_token"]) < 1e-6
assert report["nats_per_token"] + 3 * report["standard_error"] < math.log(dataset["vocab_size"]) - 0.7
PYTHON
  # 64: a configuration that can never run, or one that this vocabulary cannot have.
  for bad in 200,100 0,100 x 100,5000; do
    compose causal_words "$work/$name/shards" train.steps=2
    expect_refused 64 "model.cutoffs is '$bad'" "${command[@]}" --set model.cutoffs=$bad --run-dir "$name/bad"
    rm -rf "$name/bad"
  done
}

# Shape only: lengths, widths and batch an eighth or less of the file's; objective, data options and
# optimizer are the file's own.
ablations() {
  local row states=""
  rows() { python3 "$configs/ablation/run_ablation.py" --anyorder "$anyorder" --shards "$work/shards" --output "$work/$name" --tiny --steps 2 --ranks 2 "$@"; }
  succeeds rows
  [ -z "$(rows --dry-run)" ] || fail "what is finished would be run again: $(rows --dry-run)"
  for row in "$configs"/ablation/*.toml; do
    row=$(basename "$row" .toml)
    [ "$(grep -c '"skipped":false' "$name/$row/pretrained/metrics.jsonl")" -eq 2 ] || fail "$row: not two good steps"
    states="$states $(digest "$name/$row/pretrained")"
    echo "$row: $(losses "$name/$row/pretrained" | tail -n 1)"
  done
  # Every row trains something else.
  [ "$(echo $states | tr ' ' '\n' | sort -u | wc -l)" -eq "$(echo $states | wc -w)" ] || fail "two rows train alike:$states"
  grep -q nsp_accuracy "$name/base-next-sentence/pretrained/metrics.jsonl" || fail "the next-sentence row does not report its loss"
  ! grep -q nsp_ "$name/base-k6/pretrained/metrics.jsonl" || fail "a row without next-sentence labels reports them"
}

predict() { "$anyorder" predict "$name/run" "$@"; }

predicted() {
  local shards held_out job
  data_of gpt_finetuning "$work/prose" "$work/prose-held-out"
  compose gpt_finetuning "$shards" train.steps=60 checkpoint.every=0 optimizer.learning_rate=3e-3
  succeeds "${command[@]}" --run-dir "$name/run" --ranks 1
  expect_text "warning: train.init_from is not set: the classifier begins with random weights" "$name/log"
  sed 's/, "label": "[a-z]*"//' "$name/held-out.jsonl" >"$name/unlabelled.jsonl"
  ! grep -q label "$name/unlabelled.jsonl" || fail "the examples have labels"
  succeeds predict --data "$name/unlabelled.jsonl" --output "$name/predictions.jsonl"
  expect_text "example 100/100" "$name/log"
  # The same of a dataset that prep made of them, and from standard input, in other batches.
  succeeds predict --data "$held_out" --output "$name/labelled.jsonl" --batch-size 3
  predict --data - --output - <"$name/unlabelled.jsonl" >"$name/piped" 2>"$name/log" || fail "from a pipe: exit status $?"
  { echo sentence; sed 's/{"text": "\(.*\)"}/\1/' "$name/unlabelled.jsonl"; } >"$name/own.csv"
  for option in --text-field=sentence --field=text=sentence; do
    predict --data "$name/own.csv" $option --output - 2>"$name/log" | cmp - "$name/piped" || fail "a table with $option: $(cat "$name/log")"
  done
  expect_refused_in_a_line 65 "own.csv:1: .*--field text=NAME" predict --data "$name/own.csv" --output "$name/new"
  "$anyorder" eval "$name/run" --data "$held_out" --batches 0 --json >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
  python3 - "$name" <<'PYTHON' || fail "predictions"
import json, sys
folder = sys.argv[1]
truth = [json.loads(line)["label"] for line in open(f"{folder}/held-out.jsonl")]
plain, labelled, piped = ([json.loads(line) for line in open(f"{folder}/{name}")]
                          for name in ("predictions.jsonl", "labelled.jsonl", "piped"))
assert [line["example"] for line in plain] == list(range(1, 101)) and piped == plain
for a, b, label in zip(plain, labelled, truth):
    assert a.keys() == {"example", "label", "probabilities"} and list(a["probabilities"]) == ["colour", "compass", "number"], a
    assert abs(sum(a["probabilities"].values()) - 1) < 1e-12 and a["label"] == max(a["probabilities"], key=a["probabilities"].get)
    assert b["given_label"] == label and b["label"] == a["label"]
    assert all(abs(a["probabilities"][name] - b["probabilities"][name]) < 1e-4 for name in a["probabilities"]), (a, b)
right = sum(a["label"] == label for a, label in zip(plain, truth))
assert right > 90 and right == round(100 * json.load(open(f"{folder}/eval"))["task"]["accuracy"]), right
PYTHON
  predict --text "north south east west" >"$name/log" 2>&1 || fail "--text: exit status $?"
  [ "$(head -n 2 "$name/log" | tr '\n' ' ')" = "text: north south east west label: compass " ] && [ "$(wc -l <"$name/log")" -eq 5 ] || fail "another table: $(cat "$name/log")"
  printf 'red blue green white\none four two three\n' | predict --text - >"$name/log" 2>&1 || fail "--text -: exit status $?"
  [ "$(grep -E '^(text|label)' "$name/log" | tr '\n' ' ')" = "text: red blue green white label: colour text: one four two three label: number " ] || fail "other labels: $(cat "$name/log")"
  # Refused, and nothing is left behind.
  cp "$name/predictions.jsonl" "$name/before"
  expect_refused_in_a_line 64 "exists and is not overwritten" predict --data "$name/unlabelled.jsonl" --output "$name/predictions.jsonl"
  cmp "$name/before" "$name/predictions.jsonl" || fail "predictions were overwritten"
  expect_refused_in_a_line 64 "give either --data" predict --output "$name/new"
  expect_refused_in_a_line 64 "output is required" predict --data "$name/unlabelled.jsonl"
  expect_refused_in_a_line 64 "has one text; give it once" predict --text a --text b
  { cat "$name/unlabelled.jsonl"; echo '{"premise": "a"}'; } >"$name/bad.jsonl"
  expect_refused_in_a_line 65 "bad.jsonl:101: the object has no field 'hypothesis'" predict --data "$name/bad.jsonl" --output "$name/new"
  expect_refused 65 "the input:1: the object has none" predict --data - --output "$name/new" <<<'{}'
  mkdir "$name/gpt" && cp "$configs/gpt-tiny.toml" "$name/gpt/config.toml"
  expect_refused_in_a_line 65 "gpt tells no classes apart" "$anyorder" predict "$name/gpt" --text a
  mv "$name/examples" "$name/elsewhere"
  expect_refused_in_a_line 65 "name its training data, or a copy, with --labels-from" predict --text red
  predict --text "red white green blue" --labels-from "$name/elsewhere" >"$name/log" 2>&1 || fail "--labels-from: exit status $?"
  expect_text "^label: colour" "$name/log"
  # Stopped while it waits for its examples: no file.
  mkfifo "$name/pipe"
  "$anyorder" predict "$name/run" --data - --labels-from "$name/elsewhere" --output "$name/new" <"$name/pipe" >"$name/log" 2>&1 & job=$!
  exec 9>"$name/pipe"
  await begun; kill -TERM $job
  cat "$name/training.jsonl" >&9; exec 9>&-
  wait $job; expect_status $? 75 "after SIGTERM"
  expect_text "stopped by a signal after [0-9]* of 600 examples" "$name/log"
  ! ls -d "$name"/new* 2>/dev/null || fail "something is left behind"
}
begun() { [ -n "$(ls "$name"/new.partial-* 2>/dev/null)" ]; }

case $name in
predicted) predicted ;;
complete) complete ;;
text) text ;;
words) words ;;
trains_*) trains "${name#trains_}" ;;
ablations) ablations ;;
*) fail "no such case" ;;
esac
echo "$name: passed"
