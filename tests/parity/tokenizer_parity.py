"""Exported files in the hands of transformers: what loads, and whether text becomes the same ids there and in anyorder-prep.

Ours are read back from the shards. Where the two are known to differ, KNOWN says on which kinds of text and why; a difference on
any other kind fails. The slow tokenizer (Python and SentencePiece, transformers 4) is the one whose ids are those of pretraining.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import sentencepiece  # noqa: F401  (transformers 4 asks for it only when a tokenizer is made)
    import torch
    import transformers
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

from cases import read_weights, tensor_faults
from run_programs import PROGRAMS, anyorder, conclude, export, launch, returned, run
from tokenizer_text import lines, random_lines

transformers.logging.set_verbosity_error()
EOD, MARK = 7, "q"
# The distribution's Python has h5py, the one that has transformers may not.
READ_TOKENS = """
import glob, sys, h5py, numpy as np
tokens = [h5py.File(shard, "r")["tokens"][:] for shard in sorted(glob.glob(sys.argv[1] + "/shard-*.h5"))]
np.concatenate(tokens).astype("<i4").tofile(sys.argv[2])
"""

# Kinds of text on which a tokenizer of transformers does something else than the original clean-up
# (data/prep/cleaning.h), why, and on how many lines in a hundred at most.
SPECIAL = "special tokens are looked for in the text first; in the original code, as here, text cannot make them", 100
SIGMA = "lower-cases letter by letter; a whole line's lower() gives the final form of sigma", 50
COMMAS = "cannot take the comma off a number's piece: such pieces are made unlikely instead", 40
KNOWN = {
    "slow": {"special pieces": SPECIAL, "final sigma": SIGMA},
    # Backed by Rust and made of our tokenizer.json.
    "fast": {"special pieces": SPECIAL, "numbers": COMMAS, "other digits": COMMAS, "random": COMMAS},
}
# What a user's Python need not have.
HIDDEN = ["sentencepiece", "google.protobuf", "tiktoken", "torch"]
LOAD_BARE = """
import json, sys
sys.modules.update({name: None for name in %r})
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([tokenizer.encode(text, add_special_tokens=False) for text in json.load(sys.stdin)]))
print(json.dumps([tokenizer("a b", "c").input_ids, tokenizer("a b", "c").token_type_ids, tokenizer.mask_token_id]))
""" % HIDDEN


def encode_here(folder, texts, case, *source):
    """Ids of each text, from shards that anyorder-prep made of them; `source` says by which vocabulary."""
    # A marker after each line keeps lines that clean-up empties; a blank line ends each document.
    (folder / "lines.txt").write_text("".join(f"{text}\n{MARK}\n\n" for text in texts), encoding="utf-8", newline="")
    source = source or ["--vocab-size", 1200]
    anyorder("prep", "--input", folder / "lines.txt", "--output", folder / "shards", "--case", case, "--no-filter", "--no-dedup", "--quiet",
             "--workers", 1, *source)
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
        reason, most = KNOWN[family].get(kind, (None, 0))
        print(f"  {kind}: {len(different)} of {len(texts)} differ: {reason or 'UNKNOWN'}")
        if 100 * len(different) > most * len(texts):
            first = different[0]
            here, there = (tokenizer.convert_ids_to_tokens(ids) for ids in (ours[kind][first], theirs[first]))
            print(f"    {texts[first]!r}\n    here  {here}\n    there {there}")
            faults.append(f"{name}: {kind}")


def check_bare(name, exported, kinds, ours, faults):
    """In a Python without SentencePiece, protobuf, tiktoken and torch: the same ids, and XLNet's frame around texts."""
    exact = [kind for kind in kinds if kind not in KNOWN["fast"]]
    texts = [text for kind in exact for text in kinds[kind]]
    result = subprocess.run([sys.executable, "-c", LOAD_BARE, exported], input=json.dumps(texts), capture_output=True, text=True)
    if result.returncode != 0:
        faults.append(f"{name}, bare: {result.stderr[-2000:]}")
        return
    found, (framed, segments, mask) = (json.loads(line) for line in result.stdout.splitlines())
    if found != [ids for kind in exact for ids in ours[kind]]:
        faults.append(f"{name}, bare: other ids")
    if framed[-1] != 3 or framed.count(4) != 2 or segments[-1] != 2 or set(segments) != {0, 1, 2} or mask != 6:
        faults.append(f"{name}, bare: 'a b', 'c' became {framed}, segments {segments}; the mask is {mask}")


def check_units(folder, texts, faults):
    """Vocabularies of words and of characters, which SentencePiece's own classes in transformers do not know."""
    for kind, config, own in (("word", "transformer-xl-words-tiny", {"model.mem_len": 32, "model.cutoffs": "100,200"}),
                              ("char", "longformer-char-tiny", {"model.mem_len": 0, "model.attention_windows": ""})):
        work = folder / kind
        work.mkdir()
        ours = encode_here(work, texts, "uncased", "--vocab-type", kind, "--vocab-size", 900, "--min-count", 2)
        settings = {"data.shards": work / "shards", "train.steps": 1, "train.global_batch_size": 1, "train.micro_batch_size": 1,
                    "sampling.seq_len": 32, "model.num_layers": 1, "cpu.threads": 1, **own}
        launch(work / "run", settings, config)
        export(work / "run", work / "out", "safetensors")
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / "out")
        different = [text for text, ids in zip(texts, ours) if tokenizer.encode(text, add_special_tokens=False) != ids]
        print(f"vocabulary of {kind}s: {len(different)} of {len(texts)} differ")
        if different:
            faults.append(f"vocabulary of {kind}s: {different[0]!r} -> {tokenizer.tokenize(different[0])}")


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
    whole = read_weights(exported)
    saved = folder / "saved"
    transformers.XLNetLMHeadModel.from_pretrained(exported).save_pretrained(saved, max_shard_size="300KB")
    binary = folder / "bin"
    binary.mkdir()
    torch.save({**whole, "lm_loss.weight": whole["transformer.word_embedding.weight"]}, binary / "pytorch_model.bin")
    for directory in (saved, binary):
        for name in ("config.json", "spiece.model"):
            if not (directory / name).exists():
                (directory / name).write_bytes((exported / name).read_bytes())
    ways = [saved]
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):  # as convert_bin.py asks for
        run(sys.executable, PROGRAMS / "convert_bin.py", binary)
        ways.append(binary)
    else:
        print("not run: convert_bin.py needs torch 2.6 or newer, and this is", torch.__version__)
    for directory in ways:
        back = read_weights(returned(directory, folder, directory.name, {}))
        faults += [f"by way of {directory.name} {fault}" for fault in tensor_faults(whole, back)]


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
    random = ["", *random_lines()]
    all_kinds = {**kinds, "random": random}
    texts = [text for group in kinds.values() for text in group]
    for case in ("cased", "uncased"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            flat = iter(encode_here(folder, texts, case))
            ours = {kind: [next(flat) for _ in group] for kind, group in kinds.items()}
            (folder / "random").mkdir()
            ours["random"] = encode_here(folder / "random", random, case, "--vocab", folder / "shards/spiece.model")
            launch(folder / "run", {"data.shards": folder / "shards", "train.steps": 1, "model.num_layers": 1,
                                    "model.model_dim": 64, "model.num_heads": 2, "model.head_dim": 32, "model.ffn_dim": 64})
            export(folder / "run", folder / "hf")
            seen = set()
            for name, tokenizer in tokenizers_of(folder / "hf").items():
                if type(tokenizer) not in seen:
                    compare(f"{case}, {name}", tokenizer, all_kinds, ours, faults)
                seen.add(type(tokenizer))
            check_bare(case, folder / "hf", all_kinds, ours, faults)
            if case == "cased":
                check_models(folder / "hf", folder, faults)
            else:
                check_units(folder, [text for kind in ("nothing", "words", "accents", "CJK", "spaces", "final sigma")
                                     for text in kinds[kind]], faults)
    return conclude(faults, "all agree, but for what is known")


sys.exit(main())
