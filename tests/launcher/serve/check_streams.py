"""`anyorder serve` of runs whose vocabularies differ: streams say what plain answers do, and tokens are parts of the text.

Usage: check_streams.py make MODEL FOLDER     other SentencePiece models of the same pieces: byte fallback, merges
       check_streams.py check ANYORDER RUN [OPTION...]    a run that learned nothing, so that it writes whatever there is
"""
import os
import random
import sys
from pathlib import Path

from serve_client import Server, check_prompts, check_streams

PROMPTS = ["", "one", "two words", "caf\u00e9  \u65e5\u672c", "Upper, lower.\n\nAnother line", "\u3000wide\u3000", "(a) \"b\""]


def field(number, value):
    """One of a protocol buffer's: a number, or bytes."""
    def varint(value):
        head, rest = value & 127, value >> 7
        return bytes([head | 128]) + varint(rest) if rest else bytes([head])
    return varint(number << 3) + varint(value) if isinstance(value, int) else varint(number << 3 | 2) + varint(len(value)) + value


def make(model, folder):
    """Fields of the trainer's (2) that come last hold; pieces (1) come behind the others."""
    pieces = Path(model).read_bytes()
    pieces_of_bytes = b"".join(field(1, field(1, b"<0x%02X>" % byte) + field(3, 6)) for byte in range(256))
    unigram, merges = ((3, kind) for kind in (1, 2))
    Path(folder, "bytes.model").write_bytes(pieces + pieces_of_bytes + field(2, field(*unigram) + field(35, 1)))
    Path(folder, "merges.model").write_bytes(pieces + pieces_of_bytes + field(2, field(*merges) + field(35, 1)))


def check(anyorder, run, *options):
    seed = int(os.environ.get("ANYORDER_TEST_SEED") or random.randrange(1 << 30))
    print("seed", seed, flush=True)
    noise = random.Random(seed)
    with Server(anyorder, "--max-batch", 1, *options, run=run) as server:
        check_streams(server, noise, PROMPTS)
        check_prompts(server, noise, PROMPTS)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
