"""States of `anyorder embed` beside the last hidden states of transformers' XLNet, which reads `text <sep> <cls>` whole."""
import sys

import cases
import hf_model
import torch
from safetensors.torch import load_file

from run_programs import anyorder, export, launch

SEP, CLS = 4, 3
SIZES = {"model.num_layers": 3, "model.model_dim": 64, "model.num_heads": 4, "model.head_dim": 16, "model.ffn_dim": 128}
# Three layers, each with sums of up to 128 products of order 1, in fp32 on both sides; a position
# table of theirs in fp32 is off by 7e-6 within a hundred positions (README.md).
TOLERANCE = 1e-4


@torch.no_grad()
def compare(work, shards):
    # Drawn wide: states that differ from token to token, and attention that is far from even.
    launch(work / "run", {"data.shards": shards["text"], "train.steps": 2, "model.init_range": 0.2, **SIZES})
    export(work / "run", work / "hf")
    lines = (shards["text"].parent / "text.txt").read_text().split("\n")
    texts = [line for line in lines if line][:20] + [" ".join(lines[:30])]
    (work / "texts.txt").write_text("".join(text + "\n" for text in texts))
    anyorder("embed", work / "run", "--input", work / "texts.txt", "--output", work / "states")
    ours, measures = load_file(work / "states"), hf_model.Measures()
    model, faults = hf_model.load_model(work / "hf", both_directions=False)
    if len(ours["offsets"]) != len(texts) + 1:
        faults.append(f"{len(ours['offsets']) - 1} texts, not {len(texts)}")
    for begin, end in zip(ours["offsets"][:-1].tolist(), ours["offsets"][1:].tolist()):
        ids = torch.cat([ours["tokens"][begin:end].long(), torch.tensor([SEP, CLS])])[None]
        segments = torch.zeros_like(ids)
        segments[0, -1] = 2
        theirs = model.transformer(ids, token_type_ids=segments, use_mems=False).last_hidden_state[0, :-2]
        measures.add("states", ours["states"][begin:end], theirs)
    return measures, faults


sys.exit(cases.compare_each({"embed": compare}, TOLERANCE))
