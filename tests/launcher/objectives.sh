#!/usr/bin/env bash
# Real runs of objectives and of the ablation's configurations, on the dataset that `case.sh ... prepare` made.
#
# Usage: objectives.sh BIN_DIR WORK_DIR CASE
#   same_bits_NAME   1, 2 and 3 ranks, and a run that is killed and goes on elsewhere, end in one state
#   ablations        every file in configs/ablation, and configs/dae-tiny.toml, trains two steps on two ranks
set -u
bin=$1 work=$2 name=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
configs=$here/../../configs
anyorder=$bin/anyorder
mkdir -p "$work" && cd "$work" || exit 1
rm -rf "$name" && mkdir "$name"

fail() { echo "FAILED: $*" >&2; [ -f "$name/log" ] && tail -n 15 "$name/log" >&2; exit 1; }
digest() { "$anyorder" inspect "$(ls -d "$1"/checkpoints/step-*[0-9] | tail -n 1)" --json | sed -n 's/.*"state_digest": "\(.*\)".*/\1/p'; }
# "step loss [nsp_loss nsp_accuracy]" of every step: all that must not depend on ranks.
losses() { sed -E 's/.*"step":([0-9]+),"loss":([^,]*),.*/\1 \2 &/; s/ \{.*("nsp_loss":[^,]*,"nsp_accuracy":[^,}]*).*/ \1/; s/ \{.*//' "$1/metrics.jsonl"; }

# run DIR RANKS: the tiny run with the case's own keys.
same_bits() {
  local steps=90
  command=("$anyorder" launch --config "$here/tiny.toml" --set data.shards="$work/shards" --set train.steps=$steps)
  for key in "$@"; do command+=(--set "$key"); done
  local ranks
  for ranks in 1 2 3; do
    "${command[@]}" --run-dir "$name/run$ranks" --ranks $ranks >"$name/log" 2>&1 || fail "$ranks ranks: exit status $?"
    [ -n "$(digest "$name/run$ranks")" ] && [ "$(digest "$name/run$ranks")" = "$(digest "$name/run1")" ] || fail "$ranks ranks end in another state"
    [ "$(losses "$name/run$ranks" | wc -l)" -eq $steps ] || fail "not one line a step"
    [ "$(losses "$name/run$ranks")" = "$(losses "$name/run1")" ] || fail "$ranks ranks have other losses"
  done
  # Killed with all that belongs to it once a checkpoint is there, and resumed on another number of ranks.
  "${command[@]}" --run-dir "$work/$name/killed" --ranks 2 >"$name/log" 2>&1 &
  local job=$! i
  for i in $(seq 1200); do
    [ -n "$(ls -d "$name"/killed/checkpoints/step-*[0-9] 2>/dev/null)" ] && break
    sleep 0.05
  done
  kill -0 $job 2>/dev/null || fail "the run ended before it could be killed"
  kill -9 $job $(pgrep -f -- "--run-dir $work/$name/killed ") 2>/dev/null
  wait $job 2>/dev/null
  for i in $(seq 600); do
    [ -z "$(pgrep -f -- "^$bin/anyorder-train --run-dir $work/$name/killed ")" ] && break
    sleep 0.05
  done
  "${command[@]}" --run-dir "$work/$name/killed" --ranks 3 --resume required >>"$name/log" 2>&1 || fail "resuming: exit status $?"
  grep -q "3 ranks.*resuming after step" "$name/log" || fail "it did not resume"
  [ "$(digest "$name/killed")" = "$(digest "$name/run1")" ] || fail "the resumed run ends in another state"
  [ "$(losses "$name/killed")" = "$(losses "$name/run1")" ] || fail "the resumed run has other losses"
  if [[ "$*" == *positions=learned* ]]; then
    # No XLNet: it says so, and scores itself.
    "$anyorder" export --run-dir "$name/run1" --output "$name/hf" >"$name/log" 2>&1
    [ $? -eq 65 ] && grep -q "positions is not relative" "$name/log" || fail "export does not refuse another backbone"
    "$anyorder" eval --run-dir "$name/run1" --data "$work/other-shards" --json >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
    return
  fi
  # Weights travel on, and with them a head that there is.
  "$anyorder" export --run-dir "$name/run1" --output "$name/hf" >"$name/log" 2>&1 || fail "export: exit status $?"
  local tensor head=0
  for tensor in sequence_summary.summary.weight sequence_summary.summary.bias logits_proj.weight logits_proj.bias; do
    grep -aq "\"$tensor\"" "$name/hf/model.safetensors" && head=$((head + 1))
  done
  [[ $head -eq 4 && "$*" == *next_sentence=true* || $head -eq 0 && "$*" != *next_sentence=true* ]] || fail "$head of the head's tensors were exported"
  "$anyorder" eval --run-dir "$name/run1" --data "$work/other-shards" --json >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
  python3 - "$name/eval" "$*" <<'PYTHON' || fail "what eval says of the next sentence is wrong"
import json, sys
report = json.load(open(sys.argv[1]))
assert ("next_sentence" in report) == ("next_sentence=true" in sys.argv[2])
if "next_sentence" in report:
    pairs = report["next_sentence"]
    assert pairs["samples"] == report["settings"]["lanes"] * report["settings"]["batches"] > 0, pairs
    # A head that learned for a few steps only is near a coin's ln 2.
    assert 0.3 < pairs["nats"] < 1.5 and 0 <= pairs["accuracy"] <= 1, pairs
    assert (pairs["accuracy"] * pairs["samples"]) % 1 == 0, pairs
PYTHON
}

# Shape only: lengths, widths and batch an eighth or less of the file's; objective, data options and optimizer are the file's own.
ablations() {
  local file row memory targets states=""
  for file in "$configs"/ablation/*.toml "$configs/dae-tiny.toml"; do
    row=$(basename "$file" .toml)
    memory=$(sed -n 's/^mem_len = \([0-9]*\).*/\1/p' "$file")
    targets=$(sed -n 's/^num_predict = \([0-9]*\).*/\1/p' "$file")
    "$anyorder" launch --config "$file" --run-dir "$name/$row" --ranks 2 --set data.shards="$work/shards" \
      --set model.num_layers=2 --set model.model_dim=64 --set model.num_heads=2 --set model.head_dim=32 --set model.ffn_dim=128 \
      --set model.mem_len=$((memory / 8)) --set model.dtype=fp32 --set sampling.seq_len=64 --set sampling.reuse_len=32 \
      --set sampling.perm_size=32 --set sampling.num_predict=$(((targets + 7) / 8)) --set train.lanes=8 --set train.microbatch_lanes=1 \
      --set train.steps=2 --set optimizer.warmup_steps=0 --set checkpoint.every=0 >"$name/log" 2>&1 || fail "$row: exit status $?"
    [ "$(grep -c '"skipped":false' "$name/$row/metrics.jsonl")" -eq 2 ] || fail "$row: not two good steps"
    states="$states $(digest "$name/$row")"
    echo "$row: $(losses "$name/$row" | tail -n 1)"
  done
  # Every row trains something else.
  [ "$(echo $states | tr ' ' '\n' | sort -u | wc -l)" -eq "$(echo $states | wc -w)" ] || fail "two rows train alike:$states"
  grep -q nsp_accuracy "$name/base-next-sentence/metrics.jsonl" || fail "the next-sentence row does not report its loss"
  ! grep -q nsp_ "$name/base-k6/metrics.jsonl" || fail "a row without next-sentence labels reports them"
}

case $name in
same_bits_dae) same_bits objective.name=dae sampling.spans=word ;;
same_bits_next_sentence) same_bits objective.next_sentence=true ;;
same_bits_dae_next_sentence) same_bits objective.name=dae sampling.spans=single objective.next_sentence=true model.dropout=0.1 ;;
same_bits_gpt) same_bits objective.name=gpt model.mem_len=0 sampling.bidirectional=false model.positions=learned model.max_positions=64 \
  model.segments=none model.attention_biases=true model.softmax_bias=false model.readout_dropout=false ;;
same_bits_bert) same_bits objective.name=bert objective.next_sentence=true model.mem_len=0 sampling.bidirectional=false model.positions=learned \
  model.max_positions=64 model.segments=learned model.embedding_layer_norm=true model.attention_biases=true model.mlm_head=true \
  model.readout_dropout=false sampling.spans=word ;;
ablations) ablations ;;
*) fail "no such case" ;;
esac
echo "$name: passed"
