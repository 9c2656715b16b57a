#!/usr/bin/env bash
# Runs that begin with another run's weights: `anyorder import --format run`, and Longformer's
# phases made with it.
#
# Usage: stages.sh BIN_DIR WORK_DIR CASE        after `case.sh ... prepare`, on its dataset
#   phases      staged_windows.py: lengths, windows and rates of three phases; each begins with the
#               weights of the one before; killed in the middle and started again, it ends in the
#               same state; held-out text is scored in windows
#   longer      a masked model gets four times the positions and global projections, and trains on
#   refused     what cannot begin with these weights, in one line, and nothing is written
#   init_from   [train] init_from: the same state on 1 and 2 ranks, and after a kill before the
#               first checkpoint although the other run went on meanwhile; what a run began with is
#               not changed later
. "$(dirname "$0")/checks.sh"
configs=$here/../../configs
begin "$1" "$2" "stages_$3"

small=(model.num_layers=2 model.model_dim=32 model.num_heads=2 model.head_dim=16 model.ffn_dim=64 train.global_batch_size=8 train.micro_batch_size=2
  checkpoint.every=3 cpu.threads=1)

options() { local key; for key in "${small[@]}" "data.shards=$work/shards" "$@"; do printf -- '--set\n%s\n' "$key"; done; }

# The bytes of the master weights of a checkpoint, ranges in their order.
master() {
  PYTHONPATH=$here/../ckpt python3 - "$1" <<'PYTHON'
import hashlib, pathlib, sys
from read_safetensors import read
ranges = []
for path in pathlib.Path(sys.argv[1]).rglob("*.safetensors"):
    header, data = read(path)
    ranges += [(name, data[slice(*entry["data_offsets"])])
               for name, entry in header.items() if name.startswith("master")]
assert ranges, "no master weights"
print(hashlib.sha256(b"".join(part for _, part in sorted(ranges))).hexdigest())
PYTHON
}

phases() {
  mapfile -t set < <(options sampling.seq_len=16 "model.attention_windows=2:0; 4:0 / 3:0:2")
  staged=(python3 "$here/../../launcher/staged_windows.py" --anyorder "$anyorder" --config "$configs/longformer-char-tiny.toml"
    --steps 6,40,4 --global-batch-size 8,8,4 --max-length 48 "${set[@]}")
  succeeds "${staged[@]}" --output "$name/whole"
  local phase expected=("16|2:0; 4:0 / 3:0:2|0.00025|8" "32|4:0; 8:0 / 6:0:2|0.000125|8" "48|8:0; 16:0 / 12:0:2|6.25e-05|4")
  for phase in 1 2 3; do
    local config=$name/whole/phase-$phase/config.toml
    local rate; rate=$(python3 -c "print(f'{$(setting optimizer learning_rate "$config"):.3g}')")
    local found="$(setting sampling seq_len "$config")|$(setting model attention_windows "$config")|$rate|$(setting train global_batch_size "$config")"
    [ "$found" = "${expected[phase - 1]}" ] || fail "phase $phase is $found, not ${expected[phase - 1]}"
  done
  # A phase begins where the one before ended: with no step trained, its weights are those.
  succeeds "$anyorder" import --format run --input "$name/whole/phase-1" --output "$name/again" \
    --config "$configs/longformer-char-tiny.toml" "${set[@]}" --set sampling.seq_len=32
  [ "$(master "$(newest "$name/again")")" = "$(master "$(newest "$name/whole/phase-1")")" ] || fail "the import changed weights"
  grep -q '"event":"imported"' "$name/whole/phase-2/ledger.jsonl" || fail "phase 2 was not made of phase 1"
  # Killed in the second phase, with all that belongs to it.
  setsid "${staged[@]}" --output "$work/$name/killed" >"$name/log" 2>&1 &
  local job=$!
  phase_2_trained() { [ -n "$(ls -d "$name"/killed/phase-2/checkpoints/step-*[1-9] 2>/dev/null)" ] || ! kill -0 $job 2>/dev/null; }
  await phase_2_trained
  kill_all "$work/$name/killed/" -$job
  "${staged[@]}" --output "$work/$name/killed" >>"$name/log" 2>&1 || fail "going on: exit status $?"
  for phase in 1 2 3; do
    [ "$(digest "$name/killed/phase-$phase")" = "$(digest "$name/whole/phase-$phase")" ] || fail "phase $phase ends in another state"
  done
  # Windows of 64 tokens of which 4 are scored: every token of the text but the first, once.
  "$anyorder" eval --run-dir "$name/whole/phase-3" --data "$work/other-shards" --objective causal --window 64 --target-len 4 --batches 30 \
    --json >"$name/eval" 2>"$name/log" || fail "eval: exit status $?"
  python3 - "$name/eval" <<'PYTHON' || fail "eval in windows: $(cat "$name/eval")"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["settings"]["window"] == 64 and report["targets"] == 120, report
assert report["context_min"] == 1 and report["context_average"] > 40, report
PYTHON
}

longer() {
  mapfile -t set < <(options sampling.seq_len=15 model.max_positions=16 model.global_projections=false model.attention_windows= train.steps=4)
  succeeds "$anyorder" launch --config "$configs/longformer-tiny.toml" --run-dir "$name/short" \
    --ranks 2 "${set[@]}"
  local positions
  for positions in copy random; do
    succeeds "$anyorder" import --format run --input "$name/short" --output "$name/$positions" \
      --positions $positions --set sampling.seq_len=63 --set model.max_positions=64 \
      --set model.global_projections=true --set model.attention_windows=8:8 --set train.steps=3
    grep -q "positions 16 to 63 are $([ $positions = copy ] && echo "repeated copies" || echo "randomly initialised")" "$name/log" || fail "it does not say what it did"
    grep -q "projections of global tokens are initialised with those of all others" "$name/log" || fail "it does not name the projections"
    succeeds "$anyorder" launch --run-dir "$name/$positions" --ranks 2
    [ "$(wc -l <"$name/$positions/metrics.jsonl")" -eq 3 ] || fail "not three steps"
  done
  [ "$(digest "$name/copy")" != "$(digest "$name/random")" ] || fail "copied and random positions train alike"
}

# refuse STATUS TEXT ARGUMENT...: one line that has TEXT, and no directory.
refuse() {
  expect_refused_in_a_line "$1" "$2" "$anyorder" import --output "$name/none" "${@:3}"
  [ ! -e "$name/none" ] || fail "'$*' wrote something"
}

refused() {
  mapfile -t set < <(options sampling.seq_len=15 model.max_positions=16 train.steps=2)
  succeeds "$anyorder" launch --config "$configs/longformer-tiny.toml" --run-dir "$name/run" "${set[@]}"
  local run=(--format run --input "$name/run")
  refuse 64 "model.ffn_dim = 64" "${run[@]}" --set model.ffn_dim=128
  refuse 64 "model.positions" "${run[@]}" --set model.positions=rope
  refuse 64 "position_embedding.weight is \[16, 32\] in the old model and \[8, 32\]" "${run[@]}" \
    --set model.max_positions=8 --set sampling.seq_len=7
  refuse 64 "model.max_positions is 16" "${run[@]}" --set sampling.seq_len=31
  refuse 64 "is not a run directory" --format run --input "$name"
  refuse 64 "--positions is not used with --format hf" --format hf --input "$name/run" --positions copy
  "$anyorder" inspect "$(newest "$name/run")" >/dev/null || fail "the run was changed"
}

# start DIR RANKS KEY...: a run that takes over the weights of `source`; its exit status.
start() {
  local run=$work/$name/$1 ranks=$2; shift 2
  mapfile -t set < <(options train.steps=60 checkpoint.every=0 "$@")
  "$anyorder" launch --config "$here/tiny.toml" --run-dir "$run" --ranks "$ranks" "${set[@]}"
}
not_started() { expect_refused_in_a_line 64 "$1" start "$2" 1 "${@:3}"; }  # TEXT DIR KEY...

init_from() {
  local source="$work/$name/source"
  succeeds start source 1 checkpoint.every=20 train.steps=40
  local from=train.init_from="$source"
  succeeds start one 1 "$from"
  succeeds start two 2 "$from"
  [ -n "$(digest "$name/one")" ] && [ "$(digest "$name/one")" = "$(digest "$name/two")" ] || fail "ranks matter"
  [ "$(setting train init_from "$name/two/config.toml")" = "$source/checkpoints/step-000000040" ] || fail "the checkpoint is not pinned"
  succeeds start drawn 1
  [ "$(digest "$name/drawn")" != "$(digest "$name/one")" ] || fail "drawn weights end in the same state"
  # Killed before it has a checkpoint; then the other run goes on.
  start killed 2 "$from" cpu.threads=1 >"$name/log" 2>&1 &
  await grep -qs '"event":"train"' "$name/killed/ledger.jsonl"
  kill_all "$work/$name/killed " $!
  ! has_commit "$name/killed" || fail "it ended before it could be killed"
  not_started "began with '$source/checkpoints/step-000000040'" killed
  not_started "train.init_from is '$work/$name/one'" killed train.init_from="$work/$name/one"
  mapfile -t set < <(options train.steps=60 checkpoint.every=20)
  succeeds "$anyorder" launch --config "$here/tiny.toml" --run-dir "$source" \
    --allow-schedule-change "${set[@]}"
  succeeds start killed 2 "$from"
  [ "$(digest "$name/killed")" = "$(digest "$name/one")" ] || fail "after a kill it began with other weights"
  not_started "began with weights of its own" drawn "$from"
  not_started "is not a directory" new train.init_from="$work/$name/none"
  mkdir "$name/hf" && echo '{}' >"$name/hf/config.json"
  not_started "anyorder import --input $work/$name/hf" new train.init_from="$work/$name/hf"
  [ ! -e "$name/new" ] || fail "something was written"
}

case ${3} in
phases | longer | refused | init_from) $3 ;;
*) fail "no such case" ;;
esac
echo "$name: passed"
