#!/usr/bin/env bash
# Runs with low-rank adapters ([train.lora]) beside the weights of another run.
#
# Usage: adapters.sh BIN_DIR WORK_DIR CASE        after `case.sh ... prepare`, on its run
#   trained   ranks and a crash change nothing; a checkpoint has what is trained and no more; what
#             is evaluated in training is what `eval` and an export with the adapters merged have
#   moved     the weights beside which adapters are trained may move, and must be the same
#   refused   settings that cannot be, in one line
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "$3"
. "$here/tiny_run.sh"

adapters=(--set train.init_from="$work/reference" --set train.lora.rank=4 --set train.lora.alpha=8)
held_out=(--set eval.shards="$work/other-shards" --set eval.every=20 --set eval.batches=2)

case $name in
trained)
  few=("${adapters[@]}" --set train.steps=40 --set checkpoint.every=10 --set "train.lora.targets=q, v, down"
    --set "train.lora.tensors=layer_norm" --set optimizer.ema_decay=0.9 "${held_out[@]}"
    --set data.shards="$work/other-shards" --set optimizer.learning_rate=0.03)  # of text that the base does not know
  succeeds launch "$name/one" --ranks 1 "${few[@]}"
  expect_text "trained parameters and [0-9]* frozen ones of $work/reference/checkpoints/$last" $name/log
  expect_text "20 held-out loss" $name/log
  # Killed with all that belongs to it, and resumed on more ranks.
  start $name/killed --ranks 2 "${few[@]}"
  kill_all "$work/$name/killed " $job
  launch "$work/$name/killed" --ranks 3 --resume required "${few[@]}" >>$name/log 2>&1; expect_status $? 0 "resuming"
  [ "$(digest $name/killed)" = "$(digest $name/one)" ] || fail "ranks or a crash change the state"
  "$anyorder" inspect "$(newest $name/one)" --json >$name/table
  expect_text '"adapter_base": "'$work/reference/checkpoints/$last $name/table
  for weight in layer.0.rel_attn.q.lora_A layer.1.ff.layer_2.lora_B layer.1.ff.layer_norm.bias; do expect_text $weight $name/table; done
  ! grep -qE "word_embedding|rel_attn.k|layer_1" $name/table || fail "what is not trained was saved"
  # Whole exports: hf (merged) and named tensors are the same network, which evaluates alike.
  evaluate $name/one --data other-shards --batches 2 --json >$name/own.json || fail "eval"
  evaluate reference --data other-shards --batches 2 --json >$name/base.json || fail "eval of the base"
  "$anyorder" export $name/one --output $name/hf >$name/log 2>&1; expect_status $? 0 "export"
  "$anyorder" export $name/one --format safetensors --output $name/any >$name/log 2>&1; expect_status $? 0 "export of named tensors"
  "$anyorder" import --input $name/hf --output $name/merged --config $name/one/config.toml --set train.init_from= --set train.lora.rank=0 \
    --set train.lora.alpha=16 --set train.lora.targets=all --set train.lora.tensors= --set optimizer.ema_decay=0 >$name/log 2>&1
  expect_status $? 0 "import of the export"
  evaluate $name/merged --data other-shards --batches 2 --json >$name/merged.json || fail "eval of the import"
  # It can go on as a whole, or with other adapters.
  succeeds launch "$name/whole" --set train.init_from="$work/$name/one" --set train.steps=2
  expect_text "adapters merged" $name/log
  succeeds launch "$name/second" --set train.init_from="$work/$name/one" --set train.lora.rank=2 --set train.steps=2 --set train.lora.targets=k
  evaluate $name/second --data other-shards --batches 2 --json >$name/second.json || fail "eval of adapters beside adapters"
  # XLNet's projections are no modules of torch's.
  expect_refused 65 "peft knows modules alone, and transformer.layer.0.rel_attn.q and [0-9]* others.*--format hf" \
    "$anyorder" export $name/one --format peft --output $name/peft
  expect_refused_in_a_line 65 "has no adapters" "$anyorder" export reference --format peft --output $name/peft
  [ ! -e $name/peft ] || fail "something was left behind"
  python3 - $name reference <<'PYTHON' || fail "what was evaluated is not what was trained"
import json, sys
name, reference = sys.argv[1:]
own, merged, base = (json.load(open(f"{name}/{file}.json"))["losses"][0]["nats"] for file in ("own", "merged", "base"))
trained = [json.loads(line) for line in open(f"{name}/one/metrics.jsonl")]
# Merged weights round once more than two products do.
assert own == merged and abs(trained[-1]["eval_loss"] - own) < 1e-5, (own, merged, trained[-1])
assert own < base - 0.1, ("adapters learned nothing", own, base)
PYTHON
  ;;

moved)
  cp -r reference $name/base
  base=(--set train.init_from="$work/$name/base" --set train.lora.rank=4 --set train.steps=20 --set checkpoint.every=10)
  succeeds launch "$name/run" "${base[@]}"
  # Gone: nothing is computed with other weights. config.toml may say where it is now.
  mv $name/base $name/elsewhere
  expect_refused_in_a_line 65 "the adapters belong to the weights of '$work/$name/base/checkpoints/$last'.*set train.init_from" evaluate $name/run --data other-shards --batches 1
  sed -i "s|^init_from = .*|init_from = \"$work/$name/elsewhere\"|" $name/run/config.toml
  succeeds evaluate $name/run --data other-shards --batches 1
  succeeds launch "$name/run" "${base[@]}" --set train.steps=30 --allow-schedule-change --set train.init_from="$work/$name/elsewhere"
  expect_text "resuming after step 20" $name/log
  # Another checkpoint in its place is not taken for it.
  mv $name/elsewhere/checkpoints/$last $name/kept
  expect_refused_in_a_line 65 "the adapters belong to the weights of.*not found" evaluate $name/run --data other-shards --batches 1 ;;

refused)
  expect_refused 64 "train.lora.rank is set but train.init_from is not" launch "$name/run" --set train.lora.rank=4
  expect_refused 64 "train.lora. is set but its rank is 0" launch "$name/run" --set train.lora.targets=q
  expect_refused 64 "names 'q_proj', which is none of all, q, k" launch "$name/run" "${adapters[@]}" --set train.lora.targets=q_proj
  expect_refused 64 "train.lora.targets names 'gate', a projection that the model does not have" launch "$name/run" "${adapters[@]}" --set train.lora.targets=gate
  expect_refused 64 "train.lora.rank is -1 but must be at least 0" launch "$name/run" "${adapters[@]}" --set train.lora.rank=-1
  expect_refused 64 "train.lora.tensors names 'layer_nom', which is part of no weight's name" launch "$name/run" "${adapters[@]}" --set train.lora.tensors=layer_nom
  expect_refused 64 "did you mean 'train.lora.alpha'" launch "$name/run" "${adapters[@]}" --set train.lora_alpha=4
  [ ! -e $name/run/checkpoints ] || fail "a run was begun"
  # The file's ways to write it.
  { cat "$here/tiny.toml"; printf '[data]\nshards = "%s"\n[train.lora]\nrank = 4\nrang = 5\n' "$work/shards"; } >$name/bad.toml
  expect_refused 64 "unknown key 'train.lora.rang'; did you mean 'train.lora.rank'" "$anyorder" config --check $name/bad.toml
  sed 's/^\[train\]$/[train]\nlora = {rank = 4, alpha = 8, targets = "q"}\ninit_from = "x"/' "$here/tiny.toml" >$name/inline.toml
  printf '[data]\nshards = "%s"\n' "$work/shards" >>$name/inline.toml
  succeeds "$anyorder" config --check $name/inline.toml ;;

*) fail "no such case" ;;
esac
echo "$name: passed"
