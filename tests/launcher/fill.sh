#!/usr/bin/env bash
# `anyorder fill` on real runs.
#
# Usage: fill.sh BIN_DIR WORK_DIR CASE
#   masked_diffusion, block_diffusion, as_arm, permutation_lm, eso_lm
#             a network that knows eight sentences by heart finds their missing words, of known and
#             unknown length, and its probabilities agree with one another (check_fill.py)
#   refused   what cannot be filled is refused in one line
. "$(dirname "$0")/checks.sh"
. "$here/sentences.sh"
begin "$1" "$2" "fill_$3"
cd "$name" && name=. || exit 1

# refuses STATUS TEXT ARGUMENTS...: fill ends so, with one line that has TEXT.
refuses() { expect_refused_in_a_line "$1" "$2" "$anyorder" fill "${@:3}"; }

case $3 in
masked_diffusion|block_diffusion|as_arm|permutation_lm|eso_lm)
  config=${3//_/-}-tiny.toml size=()
  if [ "$3" = permutation_lm ]; then
    config=xlnet-tiny.toml size=(sampling.reuse_len=32 sampling.perm_size=32 sampling.num_predict=10 model.mem_len=16)
  fi
  [ "$3" != eso_lm ] || size=(train.steps=2500)
  dataset
  train "$config" run train.steps=1000 "${size[@]}"
  sentences >sentences.txt
  python3 "$here/check_fill.py" "$anyorder" run sentences.txt shards/spiece.model "$3" || fail "check_fill.py: exit status $?" ;;

refused)
  dataset
  train gpt-tiny.toml causal train.steps=1 model.max_positions=80
  train as-arm-tiny.toml run train.steps=1
  train bert-tiny.toml bert train.steps=1 sampling.reuse_len=32 sampling.num_predict=8
  echo "the ___ fox" >texts.txt
  refuses 64 "--output is required" run --input texts.txt
  refuses 65 "texts.txt:1: a causal model reads text from left to right and fills no blanks; .*anyorder generate" causal --input texts.txt --output x.jsonl
  refuses 65 "trained with bert" bert --input texts.txt --output x.jsonl
  refuses 65 "texts.txt:1: --score asks about {{words}}, but the text has blanks" run --input texts.txt --output x.jsonl --score
  refuses 64 "^[^:]*: mean-length 1 must be more than 1" run --input texts.txt --output x.jsonl --mean-length 1
  refuses 64 "^[^:]*: guidance is for models of masked diffusion" run --input texts.txt --output x.jsonl --method llada --guidance 1
  refuses 64 "^[^:]*: method .left-to-right. does not fit .* choose sequential" run --input texts.txt --output x.jsonl --method left-to-right
  refuses 64 "^[^:]*: method .burst. does not fit .* choose sequential" run --input texts.txt --output x.jsonl --method burst
  printf 'the ___ fox\nthe {{quick}} fox\n' >both.txt
  refuses 65 "both.txt:2: the text has {{words}}; add --score" run --input both.txt --output x.jsonl
  printf 'the {{quick}} fox\nthe fox\n' >none.txt
  refuses 65 "none.txt:2: the text has no blank" run --input none.txt --output x.jsonl --score
  printf 'the {65} fox\n' >long.txt
  refuses 65 "long.txt:1: the blank {65} at character 5 must have from 1 to 64 tokens" run --input long.txt --output x.jsonl
  printf 'the {60} fox jumps over the dog\n' >longer.txt
  refuses 65 "longer.txt:1: the text needs at least [0-9]* tokens, but the model has learned to read 64" run --input longer.txt --output x.jsonl
  printf '{"text": "the ___ fox", "alternative": 2}\n' >key.jsonl
  refuses 65 "key.jsonl:1: 'alternative' is not known; did you mean 'alternatives'?" run --input key.jsonl --output x.jsonl
  printf '{"text": "the ___ fox", "mean_length": 0.5}\n' >value.jsonl
  refuses 65 "value.jsonl:1: mean-length 0.5 must be more than 1" run --input value.jsonl --output x.jsonl
  printf '{"text": "the ___ fox", "method": "sequential", "group_length": 2}\n' >value.jsonl
  refuses 65 "value.jsonl:1: group_length has no effect with method .sequential." run --input value.jsonl --output x.jsonl
  [ ! -e x.jsonl ] || fail "a refused call left a file"
  echo mine >mine.jsonl
  refuses 64 "'mine.jsonl' exists and is not overwritten" run --input texts.txt --output mine.jsonl
  [ "$(cat mine.jsonl)" = mine ] || fail "it overwrote a file"
  # What stands at the end a causal model can score.
  echo "the quick {{brown fox}}" | "$anyorder" fill causal --input - --output - --score >score.jsonl || fail "scoring an end: exit status $?"
  expect_text '"is_exact":true' score.jsonl
  refuses 65 "standard input:1: a causal model cannot score words given the text after them" causal --input - --output - --score <<<"the {{quick}} fox" ;;

*) fail "no case '$3'" ;;
esac
