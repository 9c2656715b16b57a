"""Runs the product on made-up text: prepare, train, export, dump."""
import os
import random
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(os.environ["ANYORDER_BIN"])
TINY = Path(os.environ["ANYORDER_SOURCE"]) / "configs" / "xlnet-tiny.toml"


def write_text(path, documents=60, sentences=(4, 12)):
    """Documents of sentences of made-up words: enough for four streams."""
    rng = random.Random(3)
    words = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(rng.randint(1, 4)))
             for _ in range(400)]
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(documents):
            for _ in range(rng.randint(*sentences)):
                out.write(" ".join(rng.choice(words) for _ in range(rng.randint(3, 14))).capitalize() + ".\n")
            out.write("\n")


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[0]} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def prepare_text(folder, vocab_size=300):
    """Shards of made-up text, in `folder`/shards."""
    write_text(folder / "text.txt")
    run(PROGRAMS / "anyorder", "prep", "--input", folder / "text.txt", "--output", folder / "shards",
        "--vocab-size", vocab_size, "--workers", 1, "--quiet")
    return folder / "shards"


def launch(run_dir, settings):
    """A run of the tiny configuration with `settings` changed."""
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    run(PROGRAMS / "anyorder", "launch", "--config", TINY, "--run-dir", run_dir, "--ranks", 1, *overrides)


def export(run_dir, output):
    run(PROGRAMS / "anyorder", "export", "--run-dir", run_dir, "--format", "hf", "--output", output)


def dump(run_dir, steps, output):
    run(PROGRAMS / "parity_dump", run_dir, steps, output)
