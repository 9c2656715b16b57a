#!/usr/bin/env bash
# What is done with a run's results: export, eval, import, status, report, inspect.
#
# Usage: results.sh BIN_DIR WORK_DIR CASE        after `case.sh ... prepare`, on its run
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "$3"
. "$here/tiny_run.sh"

case $name in
exported)
  prep --input other.txt --output $name/by-run --vocab reference --quiet
  cmp $name/by-run/spiece.model shards/spiece.model || fail "a run does not stand for its vocabulary"
  mkdir $name/hf.tmp && touch $name/hf.tmp/precious
  "$anyorder" export --run-dir reference --format hf --output $name/hf >$name/log 2>&1; expect_status $? 0 "export"
  expect_text "exported step $steps to" $name/log
  [ -e $name/hf.tmp/precious ] || fail "export removed a directory of the user"
  python3 "$here/check_export.py" $name/hf reference shards || fail "the exported files are wrong"
  expect_refused 64 "" "$anyorder" export --run-dir reference --output $name/hf
  expect_refused 64 "keep_best" "$anyorder" export --run-dir reference --step best --output $name/hf7
  expect_refused 64 "" "$anyorder" export --run-dir reference --step -5 --output $name/hf7
  [ -z "$(ls -d $name/hf7* 2>/dev/null)" ] || fail "something was left behind"
  cp -r reference $name/damaged
  # Of step 270, unless a slow disk made the run skip that save.
  older=$(ls $name/damaged/checkpoints | grep -v "$last" | tail -n 1 | sed 's/step-0*//')
  printf x | dd of="$(ls $name/damaged/checkpoints/$last/*.safetensors)" bs=1 seek=20000 conv=notrunc 2>/dev/null
  expect_refused 65 "$last.*name another step" \
    "$anyorder" export --run-dir $name/damaged --step $steps --output $name/hf300
  [ ! -e $name/hf300 ] || fail "a damaged step was exported"
  "$anyorder" export --run-dir $name/damaged --output $name/older >$name/out 2>$name/err; expect_status $? 0 "an older step"
  expect_text "exported step $older to" $name/out
  [ "$(wc -l <$name/err)" -eq 1 ] || fail "not one line of warning: $(cat $name/err)"
  expect_text "step $steps is damaged" $name/err
  # Its dataset is the user's to find again.
  sed -i "s|^shards = .*|shards = \"$work/$name/gone\"|" $name/damaged/config.toml
  expect_refused 65 "data.shards.*gone.*put the dataset back.*--format safetensors" "$anyorder" export $name/damaged --output $name/hf300
  launch "$name/run" --set model.head_dim=8 --set train.steps=2 >>$name/log 2>&1; expect_status $? 0 "a model of another form"
  expect_refused 65 "head_dim" "$anyorder" export --run-dir $name/run --output $name/hf2
  # Its weights leave as named tensors, and both kinds of export say what they are.
  "$anyorder" export --run-dir $name/run --format safetensors --output $name/any >>$name/log 2>&1; expect_status $? 0 "export of any network"
  expect_refused 64 "max-shard-size is '3 files'" \
    "$anyorder" export --run-dir $name/run --max-shard-size "3 files" --output $name/any2
  for directory in hf any; do
    "$anyorder" inspect $name/$directory --verify >$name/model; expect_status $? 0 "inspect of an export"
    expect_text "^kind  *model" $name/model
    expect_text "^verified  *every value" $name/model
  done
  expect_text "^objective  *permutation_lm" $name/model ;;

evaluated)
  # In training: the same losses on any number of ranks, and the same as afterwards.
  for ranks in 1 2 3; do
    succeeds launch "$name/run$ranks" --ranks $ranks --set train.steps=40 \
      --set eval.shards="$work/other-shards" --set eval.every=25 --set eval.batches=2
    grep -o '"eval_loss":.*"eval_targets":[0-9]*' $name/run$ranks/metrics.jsonl >$name/losses$ranks
    cmp $name/losses1 $name/losses$ranks || fail "$ranks ranks have other held-out losses"
  done
  # The last step is evaluated though 25 does not divide 40.
  [ "$(wc -l <$name/losses1)" -eq 2 ] || fail "not two evaluations"
  grep -aq eval/loss $name/run2/tensorboard/events* || fail "TensorBoard has no held-out loss"
  "$anyorder" status --run-dir $name/run2 >$name/log; expect_text "^held-out .* after step 40" $name/log
  for threads in 1 2; do
    evaluate $name/run2 --json --batches 2 --threads $threads >$name/own$threads || fail "eval"
    evaluate $name/run2 --json --objective causal --same-length --mem-len 100 --target-len 20 --batch-size 3 --threads $threads >$name/causal$threads || fail "eval of the causal objective"
  done
  cmp $name/own1 $name/own2 && cmp $name/causal1 $name/causal2 || fail "the number of threads changes digits"
  # An objective by its system's name.
  evaluate $name/run2 --json --batches 2 --objective XLNet >$name/named && cmp $name/own1 $name/named || fail "XLNet is not the run's own objective"
  launch "$name/causal" --set train.steps=60 --set objective.name=transformer-xl --set sampling.reuse_len=256 --set sampling.num_predict=85 --set sampling.perm_size=256 >$name/log 2>&1 || fail "a causal run"
  expect_text "objective.name: transformer-xl is causal_lm" $name/log
  expect_text '^name = "causal_lm"' $name/causal/config.toml
  evaluate $name/causal --data other-shards --json --objective causal --mem-len 128 >$name/one-stream || fail "eval of a causal run"
  python3 "$here/check_eval.py" $name other.txt || fail "the reports are wrong"
  # All of the text, whatever the batch size; a part says how much it is.
  for size in 1 3 8; do
    for objective in own causal; do
      evaluate $name/run2 --json --objective $objective --batch-size $size >$name/$objective-whole$size || fail "eval of the whole text"
    done
  done
  evaluate $name/run2 --batches 2 >$name/table && expect_text "^text  .*, [1-9][0-9,]* of [1-9][0-9]*,[0-9]* tokens$" $name/table
  python3 - $name <<'PYTHON' || fail "the batch size changes the loss"
import json, sys
for kind in ("own", "causal"):
    one, *others = (json.load(open(f"{sys.argv[1]}/{kind}-whole{size}")) for size in (1, 3, 8))
    assert one["data"]["tokens_scored"] == one["data"]["tokens"], one["data"]
    def figures(report):
        return [(row["targets"], row["nats"]) for row in report["losses"]] if kind == "own" else [(report["targets"], report["nats_per_token"])]
    for other in others:
        assert other["data"] == one["data"]
        for (targets, nats), (same, near) in zip(figures(one), figures(other)):
            assert targets == same and abs(nats - near) < 1e-6 * nats, (kind, nats, near)
part = json.load(open(sys.argv[1] + "/own1"))["data"]
assert 0 < part["tokens_scored"] < part["tokens"], part
PYTHON
  evaluate $name/run2 >$name/table && expect_text "^backward  *reuse" $name/table && expect_text "no perplexity" $name/table
  evaluate $name/causal --data other-shards --objective causal >$name/table && expect_text "^perplexity" $name/table && expect_text "^definition " $name/table
  # Of one segment no standard error is known.
  evaluate $name/causal --data other-shards --objective causal --batches 1 >$name/table 2>$name/err && expect_text "^nats/token  *[0-9.]*$" $name/table
  if grep -q "+- nan" $name/err; then fail "an error that is not known is shown"; fi
  # Older steps, and text that is not held out.
  evaluate $name/run2 --step 30 --json >$name/json && expect_text '"step": 30,' $name/json
  evaluate $name/run2 --data shards --json >$name/json 2>$name/err && expect_text '"is_training_data": true' $name/json
  expect_text "trained on: this is not a held-out loss" $name/err
  # Nothing is learned: the first evaluation stays the best one, and the second ends the run.
  succeeds launch "$name/early" --set train.steps=40 --set optimizer.learning_rate=1e-30 \
    --set eval.shards="$work/other-shards" --set eval.every=10 --set eval.batches=2 --set eval.patience=1 \
    --set checkpoint.every=5 --set checkpoint.keep_best=true
  cp $name/log $name/log0
  "$anyorder" status --run-dir $name/early >$name/log
  expect_text "^state  *finished early$" $name/log && expect_text "^checkpoint  *step 10, .*  BEST$" $name/log
  # The last line of the run says it, and so does who takes the newest.
  tail -n 1 $name/log0 >$name/log; expect_text "finished; step 20, the newest, is taken; the best loss, [0-9.]*, was after step 10: --step best" $name/log
  evaluate $name/early --step best --json >$name/json 2>$name/err && expect_text '"step": 10,' $name/json
  ! grep -q "the newest" $name/err || fail "who names a step is told of the newest"
  evaluate $name/early --json >$name/json 2>$name/err && expect_text '"step": 20,' $name/json
  expect_text "step 20, the newest, is taken; the best loss, [0-9.]*, was after step 10: --step best" $name/err ;;

averaged)
  # A run that keeps an average of its weights: what evaluates and exports uses it.
  held_out=(--set train.steps=20 --set optimizer.ema_decay=0.9 --set eval.shards="$work/other-shards" --set eval.every=20 --set eval.batches=2)
  succeeds launch "$name/ema" --ranks 2 "${held_out[@]}"
  succeeds launch "$name/raw" --ranks 3 "${held_out[@]}" --set eval.use_ema=false
  [ "$(digest $name/ema)" = "$(digest $name/raw)" ] || fail "what is evaluated changes what is trained"
  evaluate $name/ema --batches 2 --json >$name/ema.json 2>$name/err || fail "eval of the average"
  expect_text "using the average of the weights" $name/err
  evaluate $name/ema --batches 2 --json --raw-weights >$name/raw.json 2>$name/err || fail "eval of the weights"
  expect_text "using the weights themselves, not their average" $name/err
  evaluate $name/ema --raw-weights >$name/table && expect_text "^weights  *themselves, not their average" $name/table
  # A run that begins with an export of the average, or of the weights, has its numbers.
  # return_as NAME: of run $name/NAME, as runs $name/NAME-from-ema and -from-raw.
  return_as() {
    local kind option
    for kind in ema raw; do
      option=; [ $kind = ema ] || option=--raw-weights
      "$anyorder" export $name/$1 $option --output $name/$1-hf-$kind >$name/log 2>&1; expect_status $? 0 "export of $kind"
      "$anyorder" import --input $name/$1-hf-$kind --output $name/$1-from-$kind --config $name/$1/config.toml --set optimizer.ema_decay=0 >$name/log 2>&1
      expect_status $? 0 "import of $kind"
    done
  }
  return_as ema
  for kind in ema raw; do
    evaluate $name/ema-from-$kind --batches 2 --json >$name/from-$kind.json || fail "eval of an import"
  done
  python3 - $name <<'PYTHON' || fail "the average is not what was evaluated"
import json, sys
report = {kind: json.load(open(f"{sys.argv[1]}/{kind}.json")) for kind in ("ema", "raw", "from-ema", "from-raw")}
for kind in ("ema", "raw"):
    trained = json.loads(open(f"{sys.argv[1]}/{kind}/metrics.jsonl").readlines()[-1])["eval_loss"]
    losses = report[kind]["losses"]
    assert report[kind]["weights"] == kind and losses == report["from-" + kind]["losses"], kind
    assert trained == losses[0]["nats"], kind
assert report["ema"]["losses"] != report["raw"]["losses"]
assert "weights" not in report["from-ema"]
PYTHON
  # So have texts and states, to which a ranker belongs; and classes, by a run that was fine-tuned.
  # gives COMMAND NAME [options...]: of run $name/NAME by its average and by its weights.
  gives() {
    local command=$1 run=$2 kind option; shift 2
    for kind in ema raw; do
      option=; [ $kind = ema ] || option=--raw-weights
      succeeds "$anyorder" $command $name/$run $option --output $name/$command-$kind "$@"
      expect_text "using the $([ $kind = ema ] && echo average || echo weights themselves)" $name/log
      succeeds "$anyorder" $command $name/$run-from-$kind --output $name/$command-from-$kind "$@"
      python3 "$here/same_values.py" $name/$command-$kind $name/$command-from-$kind || fail "$command: $kind is another"
    done
    ! python3 "$here/same_values.py" $name/$command-ema $name/$command-raw || fail "$command: the average is the weights"
  }
  python3 "$here/make_collection.py" $name && cut -d: -f2 $name/topics.txt >$name/prompts.txt
  gives generate ema --input $name/prompts.txt --max-len 4 --beam 2
  gives embed ema --input $name/prompts.txt
  ranked=(--topics $name/topics.txt --run $name/first.run --collection $name/docs.jsonl --depth 4)
  for kind in ema raw; do
    option=; [ $kind = ema ] || option=--raw-weights
    succeeds "$anyorder" rank $name/ema $option "${ranked[@]}" --qrels $name/qrels.txt --folds 3 --save $name/ranker-$kind
    succeeds "$anyorder" rank $name/ema $option "${ranked[@]}" --ranker $name/ranker-$kind --output $name/by-$kind
  done
  expect_refused 65 "was learned from the states of network .* raw, but .*--raw-weights the weights" "$anyorder" rank $name/ema "${ranked[@]}" --ranker $name/ranker-raw --output $name/new
  expect_refused 65 "was learned from the states of network .*, but this one is .* raw" "$anyorder" rank $name/ema --raw-weights "${ranked[@]}" --ranker $name/ranker-ema --output $name/new
  awk '{ printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", $0, NR % 2 ? "odd" : "even" }' $name/prompts.txt >$name/examples.jsonl
  succeeds "$anyorder" prep --examples $name/examples.jsonl --vocab shards --output $name/examples
  succeeds "$anyorder" launch $name/classes --config "$here/../../configs/finetune/xlnet-classify-tiny.toml" --ranks 1 \
    --set model.num_layers=1 --set model.model_dim=32 --set model.num_heads=2 --set model.head_dim=16 --set model.ffn_dim=64 \
    --set sampling.seq_len=32 --set data.shards="$work/$name/examples" --set optimizer.ema_decay=0.9 --set train.steps=20 \
    --set optimizer.warmup_steps=1 --set checkpoint.every=0
  return_as classes
  gives predict classes --data $name/examples.jsonl ;;

other_tokenizer)
  # A run on ids that somebody else's tokenizer made: texts are encoded with it, and exports have it
  # as it came.
  mkdir $name/theirs
  python3 - $name <<'PYTHON' || fail "the data"
import json, random, sys
folder, rng = sys.argv[1], random.Random(1)
vocab = {text: i for i, text in enumerate(["<s>", "</s>", "<mask>", "[UNK]"] + [f"w{i}" for i in range(300)])}
added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
         for text, i in list(vocab.items())[:3]]
json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "post_processor": None,
           "pre_tokenizer": {"type": "Whitespace"}, "decoder": None,
           "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}}, open(f"{folder}/theirs/tokenizer.json", "w"))
json.dump({"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}, open(f"{folder}/theirs/tokenizer_config.json", "w"))
with open(f"{folder}/ids.jsonl", "w") as out:
    for _ in range(100):
        out.write(json.dumps([rng.randrange(4, 64) for _ in range(40)]) + "\n")
PYTHON
  # The network has more rows than the tokenizer names, as released models.
  succeeds "$anyorder" prep --tokens $name/ids.jsonl --tokenizer $name/theirs --vocab-size 320 --output $name/ids
  succeeds "$anyorder" launch $name/run --config "$here/../../configs/llama-tiny.toml" --ranks 1 \
    --set model.num_layers=1 --set model.model_dim=32 --set model.num_heads=2 --set model.num_kv_heads=2 --set model.head_dim=16 \
    --set model.ffn_dim=64 --set sampling.seq_len=32 --set data.shards="$work/$name/ids" --set train.steps=2 --set optimizer.warmup_steps=1 --set checkpoint.every=0
  python3 "$here/make_collection.py" $name
  # With the stand-in of the package `tokenizers`, whose ids are bytes.
  export PYTHONPATH="$here/../testing/stand_in"
  echo "a text" >$name/prompt.txt
  write() { succeeds "$anyorder" generate "$1" --input $name/prompt.txt --output "$2" "${@:3}"; }
  write $name/run $name/written
  write $name/run $name/named --vocab $name/theirs/tokenizer.json
  cmp $name/written $name/named || fail "another text by --vocab tokenizer.json"
  succeeds "$anyorder" embed $name/run --input $name/prompt.txt --output $name/states
  expect_refused_in_a_line 65 "does not mark where a word begins" "$anyorder" rank $name/run --topics $name/topics.txt --run $name/first.run --collection $name/docs.jsonl --qrels $name/qrels.txt --output $name/new
  [ ! -e $name/new ] || fail "a refused command left something"
  for format in hf safetensors; do
    succeeds "$anyorder" export $name/run --format $format --output $name/$format
    cmp $name/theirs/tokenizer.json $name/$format/tokenizer.json || fail "$format: another tokenizer.json"
    [ ! -e $name/$format/spiece.model ] || fail "$format: a vocabulary that the run does not have"
    expect_text 'AutoTokenizer.from_pretrained("[^"]*'"/$format" $name/log
    for role in '"tokenizer_class": "PreTrainedTokenizerFast"' '"bos_token": "<s>"' '"eos_token": "</s>"' '"mask_token": "<mask>"'; do
      expect_text "$role" $name/$format/tokenizer_config.json
    done
  done
  # An imported model's files come back as they were.
  cp $name/theirs/tokenizer_config.json $name/hf
  succeeds "$anyorder" import --input $name/hf --output $name/imported
  write $name/imported $name/of-import
  cmp $name/written $name/of-import || fail "the imported run writes another text"
  succeeds "$anyorder" export $name/imported --output $name/again
  cmp $name/hf/tokenizer.json $name/again/tokenizer.json && cmp $name/hf/tokenizer_config.json $name/again/tokenizer_config.json || fail "other files of the tokenizer" ;;

eval_stopped)
  # A signal in the middle of a long evaluation: the run stops at once, at that step.
  "$anyorder" launch --config "$here/tiny.toml" --run-dir "$work/$name/long" --ranks 2 --set data.shards="$work/shards" --set train.steps=1000000 \
    --set eval.shards="$work/shards" --set eval.every=1 --set eval.batches=0 --set eval.batch_size=2 --set checkpoint.every=0 >$name/log 2>&1 & job=$!
  await grep -q "step 1 held-out loss" $name/log
  kill -TERM $job; wait $job; expect_status $? 75 "after SIGTERM"
  expect_saved_where_it_stopped $name/long ;;

eval_signalled)
  # Of a long evaluation that a signal ends, what was measured: here a segment for each token.
  "$anyorder" eval --run-dir reference --data shards --objective causal --target-len 1 --threads 1 --json >$name/json 2>$name/log & job=$!
  await grep -q "segment 0/[0-9]*$" $name/log
  sleep 0.1  # for some segments, if there is time
  kill -INT $job; wait $job; status=$?
  expect_status $status 75 "after SIGINT"
  if [ -s $name/json ]; then
    expect_text "stopped by a signal: the numbers are of [1-9][0-9]* of [0-9]* segments" $name/log
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["targets"] + 1 == r["stopped_after"]["done"] < r["stopped_after"]["of"] == r["data"]["tokens"], r' $name/json || fail "the report"
  else
    expect_text "stopped by a signal before anything was scored" $name/log
  fi
  # To its end, on a terminal: progress, and how long it will take. Threads that wait do not spin
  # for long, unless the user says so.
  script -qec "env -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=VERBOSE $anyorder eval --run-dir reference --data shards --batches 3" /dev/null >$name/out </dev/null || fail "eval on a terminal"
  expect_text "batch 5/5  [0-9.]* +- [0-9.]* nats  ETA 0" $name/out
  expect_text "GOMP_SPINCOUNT = '1000'" $name/out
  OMP_WAIT_POLICY=active OMP_DISPLAY_ENV=VERBOSE evaluate reference --data shards --batches 1 >/dev/null 2>$name/err || fail "eval"
  ! grep -q "GOMP_SPINCOUNT = '1000'" $name/err || fail "the user's OMP_WAIT_POLICY does not win" ;;

eval_refused)
  touch $name/begin
  refuse() {  # STATUS TEXT [options of eval...]
    expect_refused_in_a_line "$1" "$2" evaluate "${@:3}"
    [ ! -s $name/out ] || fail "it says something although it refuses: $(cat $name/out)"
  }
  refuse 64 "give --data" reference
  expect_refused_in_a_line 65 "gemm_algorithm_cache.txt' does not exist: a run writes it when it starts on a GPU" "$anyorder" tune reference
  refuse 64 "the run was trained with permutation_lm" reference --data other-shards --objective llada
  mkdir $name/new && cp reference/config.toml $name/new
  refuse 65 "checkpoint" $name/new --data other-shards
  prep --input other.txt --output $name/foreign --vocab-size 290
  refuse 65 "prep --vocab" reference --data $name/foreign
  refuse 64 "even" reference --data other-shards --batch-size 3 --batches 1
  for option in "--mem-len 5" "--target-len 5" "--clamp-len 5" --same-length "--objective causal --seed 2"; do
    refuse 64 "is not used with" reference --data other-shards $option
  done
  refuse 64 "not possible in an evaluation" reference --data other-shards --set model.num_layers=1
  refuse 64 "memory length 0" reference --data other-shards --objective causal --same-length --mem-len 0
  refuse 64 "at most the length of the text" \
    reference --data other-shards --objective causal --mem-len 1000000
  refuse 64 "clamp-len is 0" reference --data other-shards --objective causal --clamp-len 0
  refuse 64 "batch-size" reference --data other-shards --batch-size 0
  refuse 64 "objective" reference --data other-shards --objective bert
  cp -r reference $name/damaged
  printf x | dd of="$(ls $name/damaged/checkpoints/$last/*.safetensors)" bs=1 seek=20000 conv=notrunc 2>/dev/null
  refuse 65 "name another step" $name/damaged --data other-shards --step $steps
  evaluate reference --data other-shards --objective causal --batch-size 200 --target-len 1048576 --json >$name/json
  expect_status $? 0 "segments longer than the text"
  grep -q '"target_len": [0-9]\{1,5\},' $name/json || fail "more is computed than there is text"
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
  PYTHONPATH="$work/$name/no-torch" expect_refused 74 "torch is missing.*pip install 'torch>=2.6'" \
    python3 "$here/../../launcher/huggingface/convert_bin.py" $name/bin
  for format in "hf --input $name/hf" "run --input reference"; do
    expect_refused_in_a_line 64 "anyorder: --set optimizer.learning_rate=-1: optimizer.learning_rate is" \
      "$anyorder" import --format $format --output $name/none --set optimizer.learning_rate=-1
  done
  # Another model is refused, and nothing is written.
  find $name/run -type f | sort >$name/before
  expect_refused 64 "model.ffn_dim = 256 and do not fit model.ffn_dim = 128" \
    launch "$work/$name/run" $settings --set model.ffn_dim=128
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
  await test -d $name/killed/checkpoints/step-000000030
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
  python3 -c 'import json, sys; table = json.load(open(sys.argv[1]))["parameters"]; assert table[0] == {"name": "transformer.mask_emb", "shape": table[0]["shape"], "offset": 0}, table[0]' \
    $name/json || fail "the parameters of a checkpoint"
  "$anyorder" inspect shards --verify >$name/dataset || fail "inspect of a dataset"
  expect_text "tokens" $name/dataset
  "$anyorder" inspect shards 2>$name/full >/dev/full; expect_status $? 74 "a full disk behind standard output"
  expect_text "standard output" $name/full
  expect_refused 64 "name the directory of one" "$anyorder" inspect $name/nowhere
  "$anyorder" report --run-dir reference --output $name/report.html >$name/page || fail "report"
  expect_text '<tr data-class="train" data-seconds="[0-9]' $name/report.html
  "$anyorder" inspect reference --verify >$name/verified || fail "inspect --verify of a run"
  expect_text "^verified  *every byte of [1-9][0-9]* checkpoints\? agrees" $name/verified
  "$anyorder" inspect reference --verify --ledger >$name/verified || fail "inspect --verify --ledger"
  expect_text "^verified  *every byte of [1-9][0-9]* checkpoints\? agrees" $name/verified
  expect_text "^plan  *[0-9]* steps resampled and compared" $name/verified
  python3 "$here/check_run.py" reference $steps || fail "the run directory is wrong"
  cp -r reference $name/run
  # A run that is not done is watched until somebody has seen enough.
  sed -i 's/^steps = .*/steps = 999/' $name/run/config.toml
  prints_twice() { [ "$(grep -c "$1" $name/watched)" -ge 2 ]; }
  for line in ' stopped step 300 of 999, loss' '^{.*}$'; do
    as=(); [ "${line::1}" = ' ' ] || as=(--json)
    # A shell lets what runs in the background ignore Ctrl-C.
    env --default-signal=INT "$anyorder" status --run-dir $name/run --watch 0.2 "${as[@]}" >$name/watched & job=$!
    await prints_twice "$line"
    kill -INT $job; wait $job; expect_status $? 0 "watching until Ctrl-C"
  done
  python3 -c 'import json, sys; assert [json.loads(line) for line in open(sys.argv[1])]' $name/watched || fail "watching as JSON"
  payload=$(ls $name/run/checkpoints/$last/*.safetensors)
  printf x | dd of="$payload" bs=1 seek=20000 conv=notrunc 2>/dev/null
  "$anyorder" inspect $name/run/checkpoints/$last --verify >$name/damaged 2>&1; expect_status $? 65 "a damaged checkpoint"
  expect_text "rename or remove" $name/damaged
  expect_text "$(basename "$payload").*tensor '" $name/damaged
  rm $name/run/checkpoints/$last/MANIFEST.json
  expect_refused 65 "has no MANIFEST.json" "$anyorder" inspect $name/run/checkpoints/$last ;;

*) fail "no such case" ;;
esac
echo "$name: passed"
