#!/usr/bin/env python3
"""Blanks filled in transformers, as launcher/huggingface/README.md says: its lines are run as they stand, on exports of small runs."""
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import cases
import families_parity
import heads_parity
import hf_model
import run_programs
import torch
import transformers

README = Path(os.environ["ANYORDER_SOURCE"], "launcher/huggingface/README.md")
TOLERANCE = families_parity.TOLERANCE
XLNET = {**heads_parity.SMALL, "model.mem_len": 0, "train.steps": 30, "optimizer.learning_rate": 1e-2, "sampling.reuse_len": 24,
         "sampling.perm_size": 24, "sampling.num_predict": 8}
BERT = {**families_parity.SETTINGS, **families_parity.SMALL, **families_parity.PAIRS}
LONG = {**families_parity.SETTINGS, **families_parity.SMALL, **families_parity.RUNS["longformer"][0][1]}


def block(heading):
    """The Python lines of the README below a heading that begins so."""
    section = README.read_text().split(f"\n### {heading}", 1)[1]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


def run_block(heading, folder):
    """What the lines define, run where `hf` is; and what they print."""
    found, said = {}, io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        exec(block(heading), found)
    return found, said.getvalue()


def text_of(lines):
    """The text with a blank that is asked about."""
    return re.search(r'"([^"]*<mask>[^"]*)"', lines).group(1)


def check_xlnet(work, shards):
    """The probabilities of the words that `anyorder fill` puts in, the first of which is the likeliest, are its own."""
    run_programs.launch(work / "run", {**XLNET, "data.shards": shards["text"]})
    run_programs.export(work / "run", work / "hf")
    found, _ = run_block("Blanks of XLNet", work)
    theirs, tokenizer = found["probabilities"].log(), found["tokenizer"]
    text = text_of(block("Blanks of XLNet")).replace("<mask>", "{1}")
    done = subprocess.run([run_programs.PROGRAMS / "anyorder", "fill", work / "run", "--input", "-", "--output", "-", "--alternatives", "5"],
                          input=text + "\n", capture_output=True, text=True, check=True)
    ours = json.loads(done.stdout)["alternatives"]
    pieces = tokenizer.convert_tokens_to_ids(["\u2581" + one["blanks"][0] for one in ours])
    measures = hf_model.Measures()
    measures.add("log-probabilities of words", torch.tensor([one["log_prob"] for one in ours]), theirs[pieces])
    hf_model.print_table("XLNet", measures)
    words = [number for number, piece in enumerate(tokenizer.convert_ids_to_tokens(range(len(theirs)))) if piece[0] == "\u2581" != piece]
    likeliest = words[int(theirs[words].argmax())]
    faults = [] if pieces[0] == likeliest else [f"{tokenizer.convert_ids_to_tokens(likeliest)} is likeliest, and fill says {ours[0]}"]
    return faults + measures.exceeding(TOLERANCE, TOLERANCE)


def check_pipeline(make, work, shards):
    """fill-mask says what the class's own output is at the blank."""
    make(work, shards)
    found, _ = run_block("Blanks of BERT", work)
    tokenizer = transformers.AutoTokenizer.from_pretrained(work / "hf")
    model = transformers.AutoModelForMaskedLM.from_pretrained(work / "hf").eval()
    inputs = tokenizer(text_of(block("Blanks of BERT")), return_tensors="pt")
    with torch.no_grad():
        scores = model(**inputs).logits[0][inputs.input_ids[0] == tokenizer.mask_token_id][0].softmax(-1)
    measures = hf_model.Measures()
    measures.add("probabilities", torch.tensor([one["score"] for one in found["words"]]), scores.topk(5).values)
    hf_model.print_table(type(model).__name__, measures)
    return measures.exceeding(TOLERANCE, TOLERANCE)


def own(config, settings, work, shards):
    run_programs.launch(work / "run", {**settings, "data.shards": shards["text"]}, config)
    run_programs.export(work / "run", work / "hf")


def imported(work, shards):
    kind = transformers.RobertaForMaskedLM
    model = cases.random_model(lambda: kind(kind.config_class(**families_parity.roberta())), seed=3)
    cases.save(model, work / "theirs", shards["text"])
    run_programs.import_model(work / "theirs", work / "run", {"data.shards": shards["text"]})
    run_programs.export(work / "run", work / "hf")


def main():
    torch.set_num_threads(1)
    print(hf_model.versions())
    hf_model.print_header()
    checks = {"XLNet": check_xlnet, "BERT": partial(check_pipeline, partial(own, "bert-tiny", BERT)),
              "Longformer": partial(check_pipeline, partial(own, "longformer-tiny", LONG)), "RoBERTa": partial(check_pipeline, imported)}
    return cases.check_each({name: checks[name] for name in sys.argv[1:] or checks}, "the README's lines fill blanks as they should")


if __name__ == "__main__":
    sys.exit(main())
