#!/usr/bin/env bash
# `anyorder serve` and `chat` on real runs; what they do whatever the model is, is tested in
# serve/serve_test.py.
#
# Usage: serve.sh BIN_DIR WORK_DIR CASE        after `case.sh ... prepare`
#   run    lines, HTTP, streams and batches give the same texts and scores
#   chat   a conversation with a run whose dataset has a chat template
#   streams   pieces and tokens of runs of several vocabularies
#   tokenizer   a run with a tokenizer.json of its own, of which a token may be part of a character
. "$(dirname "$0")/checks.sh"
. "$here/sentences.sh"
begin "$1" "$2" "serve_$3"

case $3 in
run)
  python3 "$here/serve/real_run.py" "$anyorder" "$work/reference" "$work/shards/spiece.model" >"$name/log" 2>&1 || fail "$(cat "$name/log")" ;;

streams)
  cd "$name" && name=. || exit 1
  python3 "$here/serve/check_streams.py" make ../shards/spiece.model .
  for vocab in ../shards/spiece.model bytes.model merges.model; do
    run=$(basename "$vocab" .model)
    rm -rf shards
    prep --input ../corpus.txt --output shards --vocab "$vocab"
    train gpt-tiny.toml "$run" train.steps=1
    python3 "$here/serve/check_streams.py" check "$anyorder" "$run" --vocab "$vocab" >check.log 2>&1 || fail "$vocab: $(cat check.log)"
  done ;;

chat)
  for who in ann bob eve; do printf '{"messages": [{"role": "user", "content": "who is %s"}, {"role": "assistant", "content": "%s is here"}]}\n' $who $who; done >"$name/chats.jsonl"
  succeeds "$anyorder" prep --examples "$name/chats.jsonl" --vocab shards/spiece.model --chat-template '{role}: {content} <end>\n' --output "$name/chats"
  train finetune/diffusion-sft-tiny.toml "$name/run" data.shards="$name/chats" sampling.seq_len=96 train.steps=600 optimizer.warmup_steps=40
  talk() { "$anyorder" chat "$name/run" --temperature 0 --max-tokens 24 "$@" 2>"$name/err" || fail "chat: exit status $?"; }
  printf 'who is ann\n/reset\nwho is ann\nwho is bob\n/quit\nwho is eve\n' | talk >"$name/out"
  # What comes after the name and the verb, so short a training leaves to rounding.
  [ "$(cut -d ' ' -f 1,2 "$name/out")" = $'ann is\nann is\nbob is' ] || fail "not the answers that it learned: $(cat "$name/out")"
  [ "$(sed -n 1p "$name/out")" = "$(sed -n 2p "$name/out")" ] || fail "another answer after /reset: $(cat "$name/out")"
  printf 'who is ann\n' | talk --chat-template '{role}: {content} <end>\n' >"$name/own"
  [ "$(cat "$name/own")" = "$(sed -n 1p "$name/out")" ] || fail "the run's template is not the one of its dataset"
  # The same over HTTP, with the template of the dataset and with the same one by name.
  for options in "" "--chat-template={role}: {content} <end>\\n"; do
    PYTHONPATH=$here/serve python3 - "$anyorder" "$name" ${options:+"$options"} >"$name/log" 2>&1 <<'PYTHON' || fail "over HTTP: $(cat "$name/log")"
import sys
from serve_client import Server
program, folder, *options = sys.argv[1:]
with Server(program, *options, run=folder + "/run") as server:
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "who is ann"}]}], "temperature": 0, "max_tokens": 24}
    answer = server.expect("/v1/chat/completions", asked)
    assert answer["choices"][0]["message"]["content"].strip() == open(folder + "/out").readline().strip(), answer
    assert answer["choices"][0]["finish_reason"] == "stop", answer
    # Of masked diffusion no token has a probability of its own.
    status, fault = server.ask("/v1/completions", {"prompt": "who", "echo": True, "logprobs": 1})
    assert status == 422 and "bound of a whole text" in fault["error"]["message"], fault
PYTHON
  done
  echo '{"op": "facts"}' | "$anyorder" serve "$name/run" --stdio 2>"$name/err" | grep -q '"chat_template":"{role}: {content} <end>' || fail "facts have no template"
  expect_refused_in_a_line 65 "no chat template is known" "$anyorder" chat "$work/reference" --vocab shards/spiece.model ;;

tokenizer)
  cd "$name" && name=. || exit 1
  export PYTHONPATH="$here/../testing/stand_in"
  mkdir theirs broken
  python3 - <<'PYTHON'
import json
added = [{"id": i, "content": text} for i, text in [(0, "<|end|>"), (257, "<|mask|>"), (258, "<|im_start|>"), (259, "<|im_end|>")]]
json.dump({"added_tokens": added, "model": {"type": "BPE", "vocab": {"a": 98}}}, open("theirs/tokenizer.json", "w"))
json.dump({"eos_token": "<|end|>"}, open("theirs/tokenizer_config.json", "w"))
with open("corpus.jsonl", "w") as out:
    for _ in range(300):
        out.write(json.dumps({"text": "\u65e5\u672c\u8a9e \U0001F600 na\u00efve"}) + "\n")
PYTHON
  succeeds "$anyorder" prep --input corpus.jsonl --tokenizer theirs --output shards --no-filter --no-dedup
  train llama-tiny.toml run train.steps=200 model.num_kv_heads=2
  train as-arm-tiny.toml filler train.steps=1
  python3 "$here/serve/check_tokenizer.py" "$anyorder" run filler >check.log 2>&1 || fail "$(cat check.log)"
  # The tokenizer alone, without the data.
  "$anyorder" serve run --vocab theirs/tokenizer.json --stdio <<<'{"op": "tokens", "text": "\u65e5"}' 2>err | grep -q '"tokens":3' || fail "--vocab tokenizer.json: $(cat err)"
  echo 'raise ImportError("gone")' >broken/tokenizers.py
  PYTHONPATH=broken expect_refused_in_a_line 74 "has no package tokenizers (gone).*-m pip install" "$anyorder" generate run --input corpus.jsonl --output new.jsonl ;;

*) fail "no case '$3'" ;;
esac
