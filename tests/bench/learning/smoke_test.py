#!/usr/bin/env python3
"""Runs every learning experiment at a tiny size and asserts what is certain there: closed forms, and that nothing rots.

   smoke_test.py RUN.PY        programs from $ANYORDER_BIN
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import tables  # noqa: E402

MAKE_TEXT = Path(__file__).resolve().parents[2] / "launcher/make_text.py"


def expect(condition, what):
    if not condition:
        raise SystemExit(f"smoke_test.py: {what}")


def of(records, **values):
    found = tables.select(records, **values)
    expect(found, f"no record of {values}")
    return found


def check_pair(records):
    (ordered,) = of(records, bench="pair", objective="permutation_lm", final=True)
    (masked,) = of(records, bench="pair", objective="dae", mask_token_prob=1, final=True)
    (causal,) = of(records, bench="pair", objective="gpt", final=True)
    middle = ordered["sum_of_marginals"] - ordered["mutual_information"] / 2
    expect(ordered["joint_nll"] < middle, f"in sequence, names cost {ordered['joint_nll']}, more than {middle}")
    expect(masked["joint_nll"] > middle, f"independently, names cost {masked['joint_nll']}, less than {middle}")
    expect(causal["joint_nll"] < middle, f"from the left, names cost {causal['joint_nll']}, more than {middle}")
    expect("first_given_second_nll" not in causal, "the first member was predicted from the second")
    for direction in ("first_given_second_nll", "second_given_first_nll"):
        expect(ordered[direction] < middle / 2, f"{direction} of the permutation LM is {ordered[direction]}")
    expect(ordered["without_order_joint_nll"] > middle, "the order's gain remained where no target was visible")


def check_neighbours(records):
    (causal,) = of(records, bench="neighbour", objective="gpt", final=True)
    (masked,) = of(records, bench="neighbour", objective="bert", final=True)
    # No model predicts a coin: its mean loss on n fresh targets is below the entropy by chance
    # only. Five standard deviations of a mean of n losses that themselves spread by a quarter of a
    # nat, which is more than a trained model's do.
    chance = 5 * 0.25 / math.sqrt(causal["odd_targets"])
    expect(causal["odd_nll"] > causal["odd_bound"] - chance, f"read from the left, the right neighbour was seen: {causal}")
    expect(causal["even_nll"] < causal["odd_bound"] / 2, f"the causal model learned nothing: {causal}")
    middle = (masked["odd_bound"] + causal["odd_bound"]) / 2
    expect(masked["odd_nll"] < middle, f"read from both sides, odd tokens cost {masked['odd_nll']}, more than {middle}")


def check_lag(records):
    for lag in (24, 10):
        (blind,) = of(records, bench="lag", lag=lag, mem_len=0, final=True)
        (informed,) = of(records, bench="lag", lag=lag, mem_len=32, final=True)
        middle = (blind["blind_entropy"] + blind["informed_entropy"]) / 2
        outside = blind["loss_by_position"][:lag - 1]
        inside = blind["loss_by_position"][lag - 1:]
        expect(min(outside) > middle, f"lag {lag}: a source outside the segment was seen without memory: {outside}")
        # Fewer positions teach it, so it takes longer than with memory.
        learned = blind["blind_entropy"] - (blind["blind_entropy"] - blind["informed_entropy"]) / 5
        expect(not inside or sum(inside) / len(inside) < learned, f"lag {lag}: nothing was learned inside the segment")
        expect(informed["loss"] < middle, f"lag {lag}: memory did not help: {informed['loss']} is above {middle}")


def check_longer(records):
    relative = of(records, bench="lag_longer", positions="relative")
    expect(sorted(r["eval_mem_len"] for r in relative) == [32, 64, 128, 256], "not four memories")
    trained = min(relative, key=lambda r: r["eval_mem_len"])
    (informed,) = of(records, bench="lag", lag=24, mem_len=32, final=True)
    middle = (informed["blind_entropy"] + informed["informed_entropy"]) / 2
    expect(trained["loss"] < middle, f"memory did not help: {trained['loss']} is above {middle}")


def check_text(records):
    for unigram in of(records, bench="unigram"):
        # Gibbs: no distribution scores counts better than their own.
        expect(0 < unigram["target_entropy"] <= unigram["target_cross_entropy"], f"entropies: {unigram}")
        expect(unigram["heldout_entropy"] <= math.log(unigram["vocab_size"]), f"entropies: {unigram}")
    asked = of(records, bench="ablation", direction="both", part="all")
    expect(all(math.isfinite(r["nats"]) for r in asked), "a loss is not finite")
    count = lambda question: of(asked, variant="k6", question=question)[0]["targets"]
    # 2 batches of 16 lanes; SEP and CLS are never targets.
    expect(count("spans K=6") == 2 * 16 * 21, f"{count('spans K=6')} targets with K = 6")
    expect(count("spans K=7") == 2 * 16 * 18, f"{count('spans K=7')} targets with K = 7")
    dae = of(asked, variant="dae", question="spans K=6")[0]["targets"]
    expect(dae == count("spans K=6"), f"dae was asked for {dae} targets")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "corpus.txt", "wb") as corpus:
            subprocess.run([sys.executable, MAKE_TEXT, "1", "120", "400"], stdout=corpus, check=True)
        command = [sys.executable, sys.argv[1], "--corpus", folder / "corpus.txt", "--out", folder / "out", "--smoke", "--seeds",
                   "1", "--jobs", "2"]
        subprocess.run(command, check=True)
        jobs = [json.loads(line) for line in (folder / "out/results.jsonl").read_text().splitlines()]
        records = [record for job in jobs for record in job["records"]]
        for check in (check_pair, check_neighbours, check_lag, check_longer, check_text):
            check(records)
        expect((folder / "out/tables.md").read_text().count("###") >= 6, "tables are missing")
        for figure in ("ablation-training", "lag", "new-york"):
            size = (folder / f"out/{figure}.svg").stat().st_size
            expect(0 < size <= 60_000, f"{figure}.svg has {size} bytes")
        again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        expect("done:" not in again, "jobs with results ran again")
    print("smoke_test.py: all hold")


if __name__ == "__main__":
    main()
