"""Exported files in the hands of transformers: what loads, and whether text becomes the same ids there and in anyorder-prep.

Ours are read back from the shards. Where the two are known to differ, KNOWN says on which kinds of text and why; a difference on
any other kind fails. The slow tokenizer (Python and SentencePiece, transformers 4) is the one whose ids are those of pretraining.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import sentencepiece  # noqa: F401  (transformers 4 asks for it only when a tokenizer is made)
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

from run_programs import PROGRAMS, conclude, export, launch, returned, run
from tokenizer_text import lines

transformers.logging.set_verbosity_error()
EOD, MARK = 7, "q"
# The distribution's Python has h5py, the one that has transformers may not.
READ_TOKENS = """
import glob, sys, h5py, numpy as np
tokens = [h5py.File(shard, "r")["tokens"][:] for shard in sorted(glob.glob(sys.argv[1] + "/shard-*.h5"))]
np.concatenate(tokens).astype("<i4").tofile(sys.argv[2])
"""

# Kinds of text on which a tokenizer of transformers does something else than the original clean-up
# (data/prep/cleaning.h), and what.
SPECIAL = "special tokens are looked for in the text first; in the original code, as here, text cannot make them"
SIGMA = "lower-cases letter by letter; a whole line's lower() gives the final form of sigma"
MARKS = "drops all nonspacing marks, here as in the original those of a combining class; NFKD is not composed again"
SPACES = "strips and splits less than Python's str.split() does"
COMMAS = "does not take the comma off a number's piece (transformers 4 only makes such pieces unlikely)"
KNOWN = {
    "slow": {"special pieces": SPECIAL, "paragraph ends": SPECIAL, "final sigma": SIGMA},
    # Backed by Rust: XLNetTokenizerFast of transformers 4, XLNetTokenizer of transformers 5.
    "fast": {"special pieces": SPECIAL, "paragraph ends": SPECIAL, "final sigma": SIGMA, "numbers": COMMAS, "other digits": COMMAS,
             "CJK": MARKS, "scripts": MARKS, "emoji and symbols": MARKS, "spaces": SPACES, "separators": SPACES, "nothing": SPACES,
             "quotes": SPACES, "control characters": SPACES, "word marks": SPACES},
}


def encode_here(folder, texts, case, vocabulary=None):
    """Ids of each text, from shards that anyorder-prep made of them."""
    # A marker after each line keeps lines that clean-up empties; a blank line ends each document.
    (folder / "lines.txt").write_text("".join(f"{text}\n{MARK}\n\n" for text in texts), encoding="utf-8", newline="")
    source = ["--vocab", vocabulary] if vocabulary else ["--vocab-size", 1200]
    run(PROGRAMS / "anyorder", "prep", "--input", folder / "lines.txt", "--output", folder / "shards", "--case", case,
        "--no-filter", "--no-dedup", "--quiet", "--workers", 1, *source)
    subprocess.run(["/usr/bin/python3", "-c", READ_TOKENS, folder / "shards", folder / "tokens"], check=True)
    ids = list(memoryview((folder / "tokens").read_bytes()).cast("i"))
    documents, begin = [], 0
    for at, token in enumerate(ids):
        if token == EOD:
            documents.append(ids[begin:at])
            begin = at + 1
    if len(documents) != len(texts):
        sys.exit(f"{len(documents)} documents came of {len(texts)} lines")
    mark = documents[texts.index("")]
    for number, document in enumerate(documents):
        if document[-len(mark):] != mark:
            sys.exit(f"line {number} ends without the marker: {texts[number]!r}")
    return [document[:-len(mark)] for document in documents]


def compare(name, tokenizer, kinds, ours, faults):
    """Prints a line a kind that differs; adds to `faults` what KNOWN does not explain."""
    family = "fast" if tokenizer.is_fast else "slow"
    print(f"{name}: {type(tokenizer).__name__} ({family}), {sum(map(len, kinds.values()))} lines")
    for kind, texts in kinds.items():
        theirs = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        different = [i for i, ids in enumerate(theirs) if ids != ours[kind][i]]
        if not different:
            continue
        reason = KNOWN[family].get(kind)
        print(f"  {kind}: {len(different)} of {len(texts)} differ: {reason or 'UNKNOWN'}")
        if reason is None:
            first = different[0]
            here, there = (tokenizer.convert_ids_to_tokens(ids) for ids in (ours[kind][first], theirs[first]))
            print(f"    {texts[first]!r}\n    here  {here}\n    there {there}")
            faults.append(f"{name}: {kind}")


def check_models(exported, folder, faults):
    """Loads the exported weights as users do, and takes them through PyTorch's .bin and back."""
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        exported, num_labels=3, output_loading_info=True)
    fresh = {"sequence_summary.summary.weight", "sequence_summary.summary.bias", "logits_proj.weight", "logits_proj.bias"}
    if set(info["missing_keys"]) != fresh or not set(info["unexpected_keys"]) <= {"lm_loss.weight", "lm_loss.bias"}:
        faults.append(f"sequence classification: missing {info['missing_keys']}, unexpected {info['unexpected_keys']}")
    logits = model(torch.tensor([[10, 11, 12, 4, 3]])).logits
    if logits.shape != (1, 3) or not torch.isfinite(logits).all():
        faults.append("sequence classification: no logits")

    # What Hugging Face itself writes comes back bit for bit: its own safetensors, several files,
    # and .bin.
    whole = load_file(exported / "model.safetensors")
    saved = folder / "saved"
    transformers.XLNetLMHeadModel.from_pretrained(exported).save_pretrained(saved, max_shard_size="300KB")
    binary = folder / "bin"
    binary.mkdir()
    torch.save({**whole, "lm_loss.weight": whole["transformer.word_embedding.weight"]}, binary / "pytorch_model.bin")
    for directory in (saved, binary):
        for name in ("config.json", "spiece.model"):
            if not (directory / name).exists():
                (directory / name).write_bytes((exported / name).read_bytes())
    run(sys.executable, PROGRAMS / "convert_bin.py", binary)
    for directory in (saved, binary):
        back = load_file(returned(directory, folder, directory.name) / "model.safetensors")
        if set(back) != set(whole) or any(not torch.equal(back[name], whole[name]) for name in whole):
            faults.append(f"weights that came back by way of {directory.name} differ")


def tokenizers_of(exported):
    """Every way to load one that this version of transformers has."""
    ways = {"AutoTokenizer": lambda: transformers.AutoTokenizer.from_pretrained(exported),
            "AutoTokenizer, slow": lambda: transformers.AutoTokenizer.from_pretrained(exported, use_fast=False),
            "XLNetTokenizer": lambda: transformers.XLNetTokenizer.from_pretrained(exported),
            "XLNetTokenizerFast": lambda: transformers.XLNetTokenizerFast.from_pretrained(exported)}
    made = {}
    for name, make in ways.items():
        try:
            made[name] = make()
        except (ImportError, AttributeError, ValueError) as error:
            print(f"{name}: not here ({' '.join(str(error).split())[:150]})")
    return made


def main():
    faults = []
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    kinds = {"nothing": ["", " ", "\u0301", "\u00a0\t"], **lines()}
    texts = [text for group in kinds.values() for text in group]
    for case in ("cased", "uncased"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            flat = iter(encode_here(folder, texts, case))
            ours = {kind: [next(flat) for _ in group] for kind, group in kinds.items()}
            launch(folder / "run", {"data.shards": folder / "shards", "train.steps": 2, "model.num_layers": 1,
                                    "model.model_dim": 64, "model.num_heads": 2, "model.head_dim": 32, "model.ffn_dim": 64})
            export(folder / "run", folder / "hf")
            seen = set()
            for name, tokenizer in tokenizers_of(folder / "hf").items():
                if type(tokenizer) not in seen:
                    compare(f"{case}, {name}", tokenizer, kinds, ours, faults)
                seen.add(type(tokenizer))
            if case == "cased":
                check_models(folder / "hf", folder, faults)
    return conclude(faults, "all agree, but for what is known")


sys.exit(main())
