#!/usr/bin/env python3
"""`anyorder prep --tokenizer tokenizer.json` beside tokenisation in Python as people write it: same text, same file, interleaved.

  prep      the whole command, to durable shards: reading, Python's tokenizers in a process for each worker, the filter, duplicates
  loop      for line in open(text): ids.extend(tokenizer.encode(line).ids), in one process
  batches   ids of encode_batch of 1000 lines at a time, as datasets.map(batched=True) calls a fast tokenizer; its threads use all
            cores

Python's ids stay in memory and are written nowhere; its time starts when the tokenizer is loaded. The text is --text as many times as
makes --megabytes, every document of a copy with the copy's number, so that none is a duplicate. Prints a JSON line for each round,
then the medians.

Usage: tokenise.py --anyorder BIN --text FILE [--tokenizer tokenizer.json] [--megabytes 20] [--rounds 5] [--workers N ...]
Needs the package `tokenizers`; without --tokenizer, trains a byte-level BPE of 32000 on the text.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINES = 1000  # of a batch: the default of datasets.map


def train_tokenizer(text, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([str(text)], trainers.BpeTrainer(vocab_size=32000, special_tokens=["<s>", "</s>", "<mask>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}')
    return path / "tokenizer.json"


def write_copies(source, path, megabytes):
    text = source.read_text(encoding="utf-8")
    documents = [part.strip("\n") for part in text.split("\n\n" if "\n\n" in text else "\n") if part.strip()]
    copy, size = 0, 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            size += sum(out.write(f"{document}\nCopy {copy} of the text .\n\n") for document in documents)
            copy += 1


def python_seconds(text, tokenizer, kind):
    """In a process of its own, as prep has it."""
    program = f"""
import sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file({str(tokenizer)!r})
begin, ids = time.perf_counter(), []
if {kind!r} == "loop":
    for line in open({str(text)!r}, encoding="utf-8"):
        ids.extend(tokenizer.encode(line).ids)
else:
    lines = open({str(text)!r}, encoding="utf-8").readlines()
    for i in range(0, len(lines), {LINES}):
        ids.extend([encoding.ids for encoding in tokenizer.encode_batch(lines[i:i + {LINES}])])
print(time.perf_counter() - begin)
"""
    return float(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True).stdout)


def prep_seconds(arguments, text, tokenizer, workers, folder):
    with tempfile.TemporaryDirectory(dir=folder) as output:
        begin = time.perf_counter()
        subprocess.run([arguments.anyorder, "prep", "--input", text, "--tokenizer", tokenizer, "--output", output, "--workers", str(workers),
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, os.cpu_count()])
    arguments = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenizer = arguments.tokenizer or train_tokenizer(arguments.text, folder)
        write_copies(arguments.text, folder / "text.txt", arguments.megabytes)
        megabytes = (folder / "text.txt").stat().st_size / 1e6
        for _ in range(arguments.rounds):
            seconds = {f"prep, {n} workers": prep_seconds(arguments, folder / "text.txt", tokenizer, n, folder) for n in arguments.workers}
            for kind in ("loop", "batches"):
                seconds[kind] = python_seconds(folder / "text.txt", tokenizer, kind)
            rounds.append({name: round(megabytes / value, 2) for name, value in seconds.items()})
            print(json.dumps({"megabytes_per_second": rounds[-1], "load": os.getloadavg()[0]}), flush=True)
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    ratios = {f"{name} / {kind}": [round(one[name] / one[kind], 2) for one in rounds]
              for name in medians if name.startswith("prep") for kind in ("loop", "batches")}
    print(json.dumps({"megabytes": round(megabytes, 1), "medians": medians,
                      "ratios": {name: {"median": statistics.median(all_of), "all": all_of} for name, all_of in ratios.items()}}))


if __name__ == "__main__":
    main()
