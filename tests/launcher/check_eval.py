"""Checks reports of `anyorder eval`: check_eval.py DIR TEXT. DIR: own1, causal1, one-stream (JSON), losses1 (of training)."""
import json
import math
import sys

folder, text = sys.argv[1], sys.argv[2]
own, causal, one_stream = (json.load(open(f"{folder}/{name}")) for name in ("own1", "causal1", "one-stream"))

rows = {(row["direction"], row["part"]): row for row in own["losses"]}
assert len(rows) == 12
for row in rows.values():
    assert math.isclose(row["nats"], row["loss_sum"] / row["targets"], rel_tol=1e-12)
    assert 0 < row["standard_error"] < row["nats"]
total = rows["both", "all"]
for split in ([("forward", "all"), ("backward", "all")], [("both", part) for part in ("reuse", "A", "B")],
              [(d, part) for d in ("forward", "backward") for part in ("reuse", "A", "B")]):
    assert sum(rows[key]["targets"] for key in split) == total["targets"]
    assert math.isclose(sum(rows[key]["loss_sum"] for key in split), total["loss_sum"], rel_tol=1e-12)
assert own["settings"] == {"batch_size": 8, "batches": 2, "warmup_batches": 2, "seed": 1, "seq_len": 64, "mem_len": 48}
assert total["targets"] <= 8 * 2 * 10 and not own["data"]["is_training_data"]
# The same number as the training wrote after its last step, to all digits.
last = json.loads("{" + open(f"{folder}/losses1").readlines()[-1] + "}")
assert (last["eval_loss"], last["eval_targets"]) == (total["nats"], total["targets"])
assert last["eval_loss_backward"] == rows["backward", "all"]["nats"] and last["eval_loss_a"] == rows["both", "A"]["nats"]
assert "perplexity" not in own and "no perplexity" in own["quantity"]

# Every line of the text is its characters and one begin-of-line mark. The text's first token is not
# predicted.
characters = sum(len(line.rstrip("\n")) + 1 for line in open(text) if line.strip())
for report, streams in ((causal, 2), (one_stream, 1)):
    assert report["settings"]["streams"] == streams
    assert report["targets"] == report["data"]["tokens"] - 1
    assert 0 < characters - report["characters"] <= 16, (characters, report["characters"])
    assert math.isclose(report["perplexity"], math.exp(report["nats_per_token"]), rel_tol=1e-12)
    bits = report["nats_per_token"] * report["targets"] / math.log(2)
    assert math.isclose(report["bits_per_character"], bits / report["characters"], rel_tol=1e-12)
    assert report["bits_per_byte"] == report["bits_per_character"]  # ASCII
    assert report["context_min"] == 1
assert 99 < causal["context_average"] <= 100
# Memory 128, segments of 64: 129 to 192 keys once the memory is full.
assert 159 < one_stream["context_average"] < 160.5, one_stream["context_average"]
assert "same length" in causal["definition"] and "query stream" in causal["definition"]
