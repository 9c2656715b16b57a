#!/usr/bin/env bash
# `anyorder rank` and `anyorder embed` on a network that learned which words mean the same.
#
# Usage: rank.sh BIN_DIR WORK_DIR CASE
#   learns     documents that share no word with their query come first, by cross-validation and by
#              a saved ranker; states of texts as a file
#   refused    files and options that do not fit are refused in one line, and nothing is left
. "$(dirname "$0")/checks.sh"
. "$here/sentences.sh"
begin "$1" "$2" "rank_$3"
cd "$name" && name=. || exit 1

python3 "$here/make_collection.py" . || fail "the collection"
prep --input text.txt --output shards --vocab-size 160
# pretrain RUN STEPS
pretrain() {
  train bert-tiny.toml "$1" train.steps="$2" model.max_positions=64 model.init_range=0.1 sampling.reuse_len=32 sampling.num_predict=10 \
    optimizer.learning_rate=1e-3 optimizer.warmup_steps=100 checkpoint.every=0
}
files=(--topics topics.txt --run first.run)
rank() { "$anyorder" rank run "${files[@]}" "$@"; }

case $3 in
learns)
  pretrain run 500
  succeeds rank --collection docs.jsonl --qrels qrels.txt --output crossed.run --save ranker.json
  expect_text "fold 5/5: 4 topics ranked by the weights of step [1-9]" log
  cp log crossed.log
  python3 "$here/check_ranking.py" . crossed.run 0.7 >ndcg || fail "cross-validation: $(cat ndcg)"
  cat ndcg
  succeeds rank --collection docs.jsonl --ranker ranker.json --output saved.run --tag mine
  python3 "$here/check_ranking.py" . saved.run 0.7 >ndcg || fail "the saved ranker: $(cat ndcg)"
  expect_text "^1 Q0 d.* 1 .* mine$" saved.run
  # The same from the other form of collection in two files, on one thread.
  head -n 600 docs.trec >a.trec && tail -n +601 docs.trec >b.trec
  succeeds rank --collection a.trec --collection b.trec --qrels qrels.txt --output trec.run --threads 1
  cmp crossed.run trec.run || fail "TREC text or the number of threads changes something"
  # Documents that are cut, fewer of them, and no stop words.
  succeeds rank --collection docs.jsonl --qrels qrels.txt --output short.run --max-length 16 --depth 10 --stop-words none --folds 4
  expect_text "320 of 320\|[1-9][0-9]* of [0-9]* documents were cut to 16 tokens" log
  [ "$(wc -l <short.run)" -eq 200 ] || fail "not ten documents a topic"
  printf 'the %s\n\n%s %s\n' $(head -n 1 topics.txt | cut -d' ' -f2) $(head -n 2 topics.txt | tail -n 1 | cut -d' ' -f2,4) >texts.txt
  succeeds "$anyorder" embed run --input texts.txt --output states.safetensors
  PYTHONPATH=$here/../ckpt python3 - <<'END' || fail "the file of states"
import struct
from read_safetensors import read
header, data = read("states.safetensors")
def values(name, kind):
    begin, end = header[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // struct.calcsize(kind)}{kind}", data[begin:end])
offsets, tokens, states = values("offsets", "q"), values("tokens", "i"), values("states", "f")
assert len(offsets) == 4 and offsets[0] == 0 and offsets[1] == offsets[2] < offsets[3] == len(tokens), offsets
assert header["states"] == {"dtype": "F32", "shape": [len(tokens), 64], "data_offsets": header["states"]["data_offsets"]}
# LayerNorm with gains near 1.
assert all(0.3 < sum(x * x for x in states[i * 64:i * 64 + 64]) / 64 < 3 for i in range(len(tokens)))
assert len(header["__metadata__"]["network"]) == 32
END
  ;;

refused)
  pretrain run 1
  refuses() { expect_refused_in_a_line "$1" "$2" "${@:3}"; }
  learn=(rank --collection docs.jsonl --qrels qrels.txt)
  refuses 64 "either --qrels FILE" rank --collection docs.jsonl --output x.run
  refuses 64 "give --save RANKER, --output RUN" "${learn[@]}"
  refuses 64 "excludes" "${learn[@]}" --ranker qrels.txt --output x.run
  refuses 64 "requires --qrels" rank --collection docs.jsonl --ranker qrels.txt --output x.run --folds 4
  refuses 64 "output is required" rank --collection docs.jsonl --ranker qrels.txt
  refuses 64 "'a b' has a blank" "${learn[@]}" --output x.run --tag "a b"
  refuses 64 "has learned 64 positions" "${learn[@]}" --output x.run --max-length 65
  refuses 64 "two special tokens and no text\|special tokens and no text" "${learn[@]}" --output x.run --max-length 2
  refuses 65 "20 topics for 21 folds" "${learn[@]}" --output x.run --folds 21
  refuses 65 "qrels.txt' is no ranker" rank --collection docs.jsonl --ranker qrels.txt --output x.run
  head -n 100 docs.jsonl >part.jsonl
  refuses 65 "220 documents of 320 that the run ranks are in no --collection, d" rank --collection part.jsonl --qrels qrels.txt --output x.run
  refuses 65 "docs.jsonl:1: document d.* was read before" "${learn[@]}" --collection docs.jsonl --output x.run
  grep -v '^7:' topics.txt >fewer.txt
  refuses 65 "ranks documents for topic 7, which 'fewer.txt' does not have" "$anyorder" rank run --topics fewer.txt --run first.run \
    --collection docs.jsonl --qrels qrels.txt --output x.run
  sed 's/^/9/' qrels.txt >strange.txt
  refuses 65 "judges no topic" rank --collection docs.jsonl --qrels strange.txt --output x.run
  grep -v ' [12]$' qrels.txt >flat.txt
  refuses 65 "different grades; use fewer --folds" rank --collection docs.jsonl --qrels flat.txt --save x.json
  echo mine >mine.run
  refuses 64 "'mine.run' exists and is not overwritten; name another --output" "${learn[@]}" --output mine.run
  refuses 64 "'mine.run' exists and is not overwritten; name another --save" "${learn[@]}" --save mine.run
  [ "$(cat mine.run)" = mine ] || fail "it overwrote a file"
  # A ranker belongs to the states that it learned from.
  succeeds "${learn[@]}" --save ranker.json
  pretrain other 2
  refuses 65 "was learned from the states of network" "$anyorder" rank other "${files[@]}" --collection docs.jsonl --ranker ranker.json --output x.run
  refuses 64 "exists" "$anyorder" embed run --input topics.txt --output mine.run
  refuses 65 "holds no token" "$anyorder" embed run --input - --output x.safetensors <<<""
  [ -z "$(ls -d x.* ./*.partial* ./*.tmp 2>/dev/null)" ] || fail "a refused call left a file" ;;

*) fail "no case '$3'" ;;
esac
