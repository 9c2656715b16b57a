#!/usr/bin/env bash
# `anyorder generate` and `anyorder fill` on real runs.
#
# Usage: generate.sh BIN_DIR WORK_DIR CASE
#   gpt, transformer_xl   a network that knows eight sentences by heart goes on from four words of
#                         each, in any grouping and on any threads; gpt: and thinks that
#                         they are probable
#   xlnet                 texts from the query stream, searched and drawn, the same each time
#   unilmv2               a network fine-tuned to turn three words round does so
#   unilm                 prompts as sources that the network rewrites, by a [MASK] a step
#   masked_diffusion, block_diffusion, as_arm, permutation_lm, eso_lm
#                         a network that knows the sentences by heart finds their missing words, of
#                         known and unknown length, and its probabilities agree with one another
#                         (check_fill.py); the first three write the sentences by each method,
#                         whatever else is written with them
#   markers               a network that has seen little but <eop> and <unk> writes neither
#   refused, fill_refused what cannot be generated or filled is refused in one line
. "$(dirname "$0")/checks.sh"
. "$here/sentences.sh"
begin "$1" "$2" "generate_$3"
cd "$name" && name=. || exit 1

# refuses STATUS TEXT ARGUMENTS...: generate ends so, with one line that has TEXT.
refuses() { expect_refused_in_a_line "$1" "$2" "$anyorder" generate "${@:3}"; }
texts() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
    found = json.loads(line)
    print(found["prompt"], found["rank"], found["input"] + found["text"], found["ended"])' "$1"; }

# Every sentence comes out whole and ends, whatever is searched beside it.
knows_by_heart() {
  sentences | awk '{ print NR, 1, $0, "True" }' >expected
  "$anyorder" generate --run-dir run --input prompts.txt --output beam.jsonl --max-len 60 --threads 2 2>err || fail "generate: exit status $?: $(cat err)"
  texts beam.jsonl | diff expected - || fail "other texts than those it learned"
  "$anyorder" generate --run-dir run --input - --output - --max-len 60 --beam 1 --batch 3 <prompts.txt >greedy.jsonl || fail "greedy: exit status $?"
  texts greedy.jsonl | diff expected - || fail "greedy search finds other texts"
  "$anyorder" generate --run-dir run --input prompts.txt --output one.jsonl --max-len 60 --threads 1 || fail "one thread: exit status $?"
  cmp beam.jsonl one.jsonl || fail "the number of threads changes something"
  "$anyorder" generate --run-dir run --input prompts.txt --output alone.jsonl --max-len 60 --batch 1 || fail "one by one: exit status $?"
  texts alone.jsonl | diff expected - || fail "prompts that are generated alone get other texts"
  # A document from its begin, and prompts as JSON.
  printf '{"text": ""}\n{"text": "seven small"}\n' >prompts.jsonl
  "$anyorder" generate --run-dir run --input prompts.jsonl --output json.jsonl --max-len 60 --best 3 || fail "jsonl: exit status $?"
  texts json.jsonl >json.txt
  [ "$(grep -c '^1 ' json.txt)" -eq 3 ] && grep -q '^2 1 seven small birds sing' json.txt || fail "$(cat json.txt)"
  while read -r _ _ text; do sentences | grep -qx "${text% *}" || fail "no document begins so: $text"; done < <(grep '^1 1 ' json.txt)
}

# What it learned is what it thinks probable: as probable as the search said, but for the end, which
# is certain; and it chooses what goes on.
judges() {
  "$anyorder" likelihood run --input beam.jsonl --output scores.jsonl --json >summary.json 2>err || fail "likelihood: exit status $?: $(cat err)"
  python3 - <<'END' >questions.jsonl || fail "$(cat summary.json)"
import json, math
texts, scores = ([json.loads(line) for line in open(name)] for name in ("beam.jsonl", "scores.jsonl"))
summary = json.load(open("summary.json"))
assert len(texts) == len(scores) == summary["texts"] == 8
for text, score in zip(texts, scores):
    assert score["is_exact"] and score["tokens"] == text["tokens"] - 1, (text, score)
    assert score["bytes"] == len(text["text"].encode()) and -1e-4 < score["log_prob"] - text["log_prob"] < 0.5, (text, score)
nats = -sum(score["log_prob"] for score in scores) / sum(score["tokens"] for score in scores)
assert math.isclose(summary["nats_per_token"], nats, rel_tol=1e-9) and summary["perplexity"] < 2 and summary["distinct_4"] > 0.5
for n, text in enumerate(texts):
    print(json.dumps({"input": text["input"], "choices": [texts[n - 1]["text"], text["text"], texts[n - 2]["text"]], "answer": 1}))
END
  "$anyorder" likelihood run --input - <questions.jsonl >table.txt 2>err || fail "choices: exit status $?: $(cat err)"
  expect_text "^accuracy  *1.0000" table.txt
  expect_text "^chance  *0.3333" table.txt
  expect_refused_in_a_line 64 "'scores.jsonl' exists and is not overwritten" "$anyorder" likelihood run --input beam.jsonl --output scores.jsonl
}

# Drawn texts are what their traces say, token by token; on a terminal they are what is left there.
traces() {
  local draw=(run --input prompts.txt --sample 2 --temperature 0.5 --max-len 30)
  "$anyorder" generate "${draw[@]}" --output drawn.jsonl --trace trace.jsonl 2>err || fail "generate: exit status $?: $(cat err)"
  python3 - <<'END' || fail "$(head -n 1 trace.jsonl)"
import json
texts, traces = ([json.loads(line) for line in open(name)] for name in ("drawn.jsonl", "trace.jsonl"))
assert len(texts) == len(traces) == 16
for text, trace in zip(texts, traces):
    pieces = [token["piece"] for token in sorted(trace["written"], key=lambda token: token["position"])]
    assert (text["prompt"], text["rank"], text["text"]) == (trace["prompt"], trace["rank"], "".join(pieces)), (text, trace)
    assert "".join(trace["prompt_pieces"]).strip() == text["input"] and trace["passes"] == text["passes"], trace
    assert abs(sum(token["log_prob"] for token in trace["written"]) - text["log_prob"]) < 1e-9, trace
END
  succeeds "$anyorder" show --trace trace.jsonl --trace-text 16 --output text.svg
  expect_refused_in_a_line 64 "'trace.jsonl' exists and is not overwritten" "$anyorder" generate "${draw[@]}" --output x.jsonl --trace trace.jsonl
  python3 -c 'import json
for line in open("drawn.jsonl"):
    text = json.loads(line)
    print(text["input"] + text["text"])' >expected
  "$anyorder" generate "${draw[@]}" --stream >plain.txt 2>err || fail "stream: exit status $?: $(cat err)"
  diff expected plain.txt || fail "a stream without a terminal shows other texts"
  TERM=xterm script -qec "'$anyorder' generate ${draw[*]} --stream" /dev/null </dev/null | tr -d '\r' >terminal.txt
  diff expected terminal.txt || fail "a stream on a terminal shows other texts"
}

# by_heart CONFIG [key=value...]: a network of any order learns the sentences, and fills their gaps.
by_heart() {
  dataset
  train "$1" run train.steps=1000 "${@:2}"
  sentences >sentences.txt
  python3 "$here/check_fill.py" "$anyorder" run sentences.txt shards/spiece.model "$(setting objective name run/config.toml)" || fail "check_fill.py: exit status $?"
}

# write WAY OUTPUT [options...]: texts of the prompts. WAY: METHOD [options]
write() { "$anyorder" generate run --input prompts.txt --output "$2" --max-len 45 --method $1 "${@:3}" 2>err || fail "$*: exit status $?: $(cat err)"; }
# writes WAY...: each finds the sentences.
writes() {
  local way
  sentences | awk '{ print NR, 1, $0, "True" }' >expected
  for way in "$@"; do
    write "$way" "$way.jsonl" --temperature 0
    texts "$way.jsonl" | diff expected - || fail "$way: other texts than those it learned"
  done
}
# draws WAY...: each text is its own, and the same in other company.
draws() {
  local way draw=(--sample 2 --temperature 3 --seed 7)
  for way in "$@"; do
    write "$way" drawn.jsonl "${draw[@]}" --threads 2
    write "$way" alone.jsonl "${draw[@]}" --threads 1 --batch 1 --recompute
    texts drawn.jsonl >drawn.txt && texts alone.jsonl | cmp - drawn.txt || fail "$way: another text in other company"
    [ "$(sort -u drawn.txt | wc -l)" -eq 16 ] || fail "$way: 16 draws are not 16 texts"
    rm drawn.jsonl alone.jsonl
  done
}

case $3 in
gpt)
  dataset
  train gpt-tiny.toml run model.max_positions=80 train.steps=800
  knows_by_heart
  judges
  traces
  refuses 64 "prompt 1: a prompt of .* positions, but the model has learned 80" --run-dir run --input prompts.txt --output x.jsonl --max-len 100
  [ ! -e x.jsonl ] || fail "it left a file"
  # A prompt that leaves room for a few tokens takes none from another's text.
  for words in $(seq 79 -3 20); do
    printf 'seven small\n%s\n' "$(yes the | head -n "$words" | paste -sd ' ')" >uneven.txt
    ! "$anyorder" generate run --input uneven.txt --output uneven.jsonl 2>err || break
  done
  [ -e uneven.jsonl ] || fail "no long prompt fits: $(cat err)"
  head -n 1 uneven.txt | "$anyorder" generate run --input - --output one_of_two.jsonl || fail "alone: exit status $?"
  head -n 1 uneven.jsonl | cmp - one_of_two.jsonl || fail "a long prompt shortens another's text: $(cat uneven.jsonl)"
  [ "$(tail -n 1 uneven.jsonl | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"] < 8)')" = True ] || fail "the prompt is not long: $(cat uneven.jsonl)" ;;

transformer_xl)
  dataset
  train transformer-xl-tiny.toml run model.mem_len=8 train.steps=800
  knows_by_heart ;;

xlnet)
  "$anyorder" generate --run-dir "$work/reference" --input - --output beam.jsonl --max-len 12 --beam 3 --best 2 --block-ngram 2 --length-penalty 0.6 \
    --vocab "$work/shards/spiece.model" <<<"any words" 2>err || fail "generate: exit status $?: $(cat err)"
  [ "$(texts beam.jsonl | wc -l)" -eq 2 ] || fail "not two texts: $(cat beam.jsonl)"
  draw() { "$anyorder" generate --run-dir "$work/reference" --input - --output "$1" --max-len 12 --sample 4 --temperature 1.2 --top-k 50 --top-p 0.9 --seed "$2" <<<"any words" || fail "drawing: exit status $?"; }
  draw drawn.jsonl 5 && draw again.jsonl 5 && draw other.jsonl 6
  cmp drawn.jsonl again.jsonl || fail "the same seed draws other texts"
  ! cmp -s drawn.jsonl other.jsonl || fail "another seed draws the same texts"
  [ "$(texts drawn.jsonl | sort -u | wc -l)" -eq 4 ] || fail "four draws are not four texts" ;;

unilmv2)
  # Three words backwards, learned by heart: the source is read whole, the target written by a [P] a
  # step.
  dataset
  sentences | python3 -c 'import json, sys
for line in sys.stdin:
    words = line.split()
    for at in (0, 3, 6):
        print(json.dumps({"source": " ".join(words[at:at + 3]), "target": " ".join(words[at:at + 3][::-1])}))' >pairs.jsonl
  succeeds "$anyorder" prep --examples pairs.jsonl --vocab shards/spiece.model --output pairs
  train unilmv2-seq2seq-tiny.toml run data.shards="$PWD/pairs" sampling.num_predict=24 optimizer.learning_rate=1e-3 train.steps=800
  python3 -c 'import json, sys
for line in sys.stdin: print(json.dumps({"text": json.loads(line)["source"]}))' <pairs.jsonl >sources.jsonl
  "$anyorder" generate --run-dir run --input sources.jsonl --output beam.jsonl --beam 4 --length-penalty 0.6 --max-len 30 2>err || fail "generate: exit status $?: $(cat err)"
  "$anyorder" generate --run-dir run --input sources.jsonl --output one.jsonl --beam 4 --length-penalty 0.6 --max-len 30 --threads 1 --batch 8 || fail "one thread: exit status $?"
  cmp beam.jsonl one.jsonl || fail "the number of threads changes something"
  python3 - <<'END' || fail "not the targets that it learned"
import json, sys
targets = [json.loads(line)["target"] for line in open("pairs.jsonl")]
texts = [json.loads(line) for line in open("beam.jsonl")]
wrong = [(text["text"], target) for text, target in zip(texts, targets) if text["text"] != target or not text["ended"]]
sys.exit(f"{len(wrong)} of {len(targets)}: {wrong[:3]}" if wrong or len(texts) != len(targets) else 0)
END
  ;;

unilm)
  # What it writes after so few steps is nothing to compare with: that prompts become sources and
  # texts come back is.
  dataset
  train unilm-tiny.toml run train.steps=20 sampling.reuse_len=32 sampling.num_predict=8 model.max_positions=64
  "$anyorder" generate --run-dir run --input prompts.txt --output beam.jsonl --beam 3 --block-ngram 3 --min-len 4 2>err || fail "generate: exit status $?: $(cat err)"
  "$anyorder" generate --run-dir run --input prompts.txt --output one.jsonl --beam 3 --block-ngram 3 --min-len 4 --threads 1 || fail "one thread: exit status $?"
  cmp beam.jsonl one.jsonl || fail "the number of threads changes something"
  python3 - beam.jsonl <<'END' || fail "$(cat beam.jsonl)"
import json, sys
texts = [json.loads(line) for line in open(sys.argv[1])]
assert [text["prompt"] for text in texts] == list(range(1, 9))
for text in texts:
    assert text["tokens"] >= 4 and text["log_prob"] < 0 and text["text"], text
END
  refuses 64 "prompt 1: the prompt is empty" --run-dir run --input - --output x.jsonl <<<"" ;;

masked_diffusion)
  by_heart masked-diffusion-tiny.toml train.steps=2400
  writes llada "llada --block-length 8" "dream --confidence margin"
  draws "llada --steps 16" mdlm
  refuses 64 'method "eso-lm" does not fit .* choose llada, dream, mdlm, threshold' run --input prompts.txt --output x.jsonl --method eso-lm
  refuses 64 'method "left-to-right" does not fit .* choose llada' run --input prompts.txt --output x.jsonl --method left-to-right
  refuses 64 "set block-length" run --input prompts.txt --output x.jsonl --cache dual
  refuses 64 "at least 9 tokens before the end, but they and the end token must fit in 9" run --input prompts.txt --output x.jsonl --min-len 9 --max-len 9
  refuses 64 "are more than the 64 tokens that this model has learned to read" run --input prompts.txt --output x.jsonl --max-len 64
  [ ! -e x.jsonl ] || fail "a refused call left a file" ;;

block_diffusion)
  by_heart block-diffusion-tiny.toml
  writes bd3lm threshold
  draws bd3lm ;;

as_arm)
  by_heart as-arm-tiny.toml
  writes sequential speculative
  draws "speculative --draft 3"
  refuses 64 'guidance has no effect with method "sequential", only with llada, dream, mdlm, threshold' run --input prompts.txt --output x.jsonl --guidance 1
  refuses 64 "cache dual is for models of masked diffusion" run --input prompts.txt --output x.jsonl --method llada --block-length 8 --cache dual
  [ ! -e x.jsonl ] || fail "a refused call left a file" ;;

permutation_lm) by_heart xlnet-tiny.toml sampling.reuse_len=32 sampling.perm_size=32 sampling.num_predict=10 model.mem_len=16 ;;

eso_lm) by_heart eso-lm-tiny.toml train.steps=2500 ;;

markers)
  # Of what it has learned, ends of paragraphs, unknown letters and the end of the document are the
  # likeliest by far; texts are of the rest, whatever chooses them.
  dataset
  for _ in $(seq 200); do printf 'the<eop><eop><eop> \xe8\xaa\x9e<eop><eop> \xe9\xa0\x86<eop><eop>\n\n'; done >marks.txt
  prep --input marks.txt --output marks --vocab shards/spiece.model
  for config in gpt xlnet; do
    size=(model.max_positions=80)
    [ $config = gpt ] || size=(sampling.reuse_len=32 sampling.perm_size=32 sampling.num_predict=10 model.mem_len=16)
    train $config-tiny.toml $config data.shards="$PWD/marks" train.steps=40 "${size[@]}"
    ways=("--beam 1" "--beam 4 --best 4" "--beam 3 --stop-first --min-len 3" "--sample 4" "--sample 4 --top-k 3" "--sample 4 --top-p 0.5 --temperature 2")
    for way in "${!ways[@]}"; do
      # shellcheck disable=SC2086
      "$anyorder" generate $config --input prompts.txt --output $config$way.jsonl --max-len 10 ${ways[way]} 2>err || fail "generate: exit status $?: $(cat err)"
    done
  done
  python3 - ./*.jsonl <<'END' || fail "markers in a text"
import json, sys
texts = [json.loads(line) for path in sys.argv[1:] if path != "./sources.jsonl" for line in open(path)]
assert len(texts) > 100 and any(text["text"] for text in texts)
for text in texts:
    for mark in ("\n", "<", ">", "\u2047", "\u8a9e"):
        assert mark not in text["text"], text
END
  ;;

refused)
  reference=(--run-dir "$work/reference" --input prompts.txt)
  echo "some words" >prompts.txt
  refuses 64 "--output is required" "${reference[@]}"
  refuses 64 "--beam excludes --sample\|--sample excludes --beam" "${reference[@]}" --output x.jsonl --beam 3 --sample 2
  refuses 64 "top-p: must be a number in (0, 1]" "${reference[@]}" --output x.jsonl --sample 2 --top-p 2
  refuses 64 'steps has no effect with method "left-to-right", only with llada' "${reference[@]}" --output x.jsonl --steps 4
  refuses 64 'recompute has no effect with method "left-to-right"' "${reference[@]}" --output x.jsonl --sample 2 --recompute
  refuses 64 "at least 9 tokens before the end" "${reference[@]}" --output x.jsonl --min-len 9 --max-len 9
  prep --input "$work/other.txt" --output shards --vocab-size 200
  refuses 65 "is vocabulary .* but the run was trained with" "${reference[@]}" --output x.jsonl --vocab shards/spiece.model
  echo "mine" >mine.jsonl
  refuses 64 "'mine.jsonl' exists and is not overwritten" "${reference[@]}" --output mine.jsonl --max-len 2
  [ "$(cat mine.jsonl)" = mine ] || fail "it overwrote a file"
  # What a full disk breaks off does not look like the whole; what was done has another name.
  for n in {1..40}; do echo "some words"; done >many.txt
  status=0
  (trap '' XFSZ && ulimit -f 2 && exec "$anyorder" generate --run-dir "$work/reference" --input many.txt --output full.jsonl --max-len 8 --batch 4) 2>err || status=$?
  [ $status -eq 74 ] && [ ! -e full.jsonl ] || fail "a full disk: exit status $status, $(ls): $(cat err)"
  partial=$(ls full.jsonl.partial-*) && [ -s "$partial" ] || fail "no lines were kept: $(ls)"
  expect_text "full.jsonl was not made; the lines that were done are in $partial" err
  for objective in bert dae; do
    train $objective-tiny.toml $objective train.steps=1 sampling.reuse_len=32 sampling.num_predict=8
    refuses 65 "trained with $objective predicts masked tokens .* use a network trained with" --run-dir $objective --input prompts.txt --output x.jsonl
  done
  [ ! -e x.jsonl ] || fail "a refused call left a file" ;;

fill_refused)
  refuses() { expect_refused_in_a_line "$1" "$2" "$anyorder" fill "${@:3}"; }
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
