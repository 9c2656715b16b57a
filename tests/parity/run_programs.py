"""Runs the product on made-up text: prepare, train, export, dump."""
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(os.environ["ANYORDER_BIN"])
CONFIGS = Path(os.environ["ANYORDER_SOURCE"]) / "configs"


def write_text(path, documents, num_words, syllables):
    """Documents of sentences of made-up words."""
    rng = random.Random(3)
    words = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(rng.randint(*syllables)))
             for _ in range(num_words)]
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(documents):
            for _ in range(rng.randint(4, 12)):
                out.write(" ".join(rng.choice(words) for _ in range(rng.randint(3, 14))).capitalize() + ".\n")
            out.write("\n")


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[0]} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def prepare_text(folder, vocab_size=300, documents=60, num_words=400, syllables=(1, 4)):
    """Shards of made-up text, in `folder`/shards: enough for four streams of a tiny network."""
    write_text(folder / "text.txt", documents, num_words, syllables)
    run(PROGRAMS / "anyorder", "prep", "--input", folder / "text.txt", "--output", folder / "shards",
        "--vocab-size", vocab_size, "--workers", 1, "--quiet")
    return folder / "shards"


def prepare_examples(folder, task, vocabulary):
    """Labelled examples, or sources and targets, of made-up words, by the vocabulary of other shards."""
    rng = random.Random(4)
    text = lambda: " ".join(rng.choice(["ba", "ko", "mi", "nu", "ta"]) for _ in range(rng.randint(3, 8)))

    def tagged():
        words = ["".join(rng.choice(["ba", "ko", "mi", "nu", "ta"]) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(3, 8))]
        return {"words": words, "tags": [rng.choice(["O", "B-X", "I-X"]) for _ in words]}

    def question():
        words = [rng.choice(["ba", "ko", "mi", "nu", "ta"]) for _ in range(20)]
        begin = rng.randrange(18)
        answer = {"text": " ".join(words[begin:begin + 2]), "start": 3 * begin}
        return {"question": text(), "passage": " ".join(words), "answers": [answer] if rng.random() < 0.7 else []}

    if task == "similarity":  # scores are read of STS-B alone
        header = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
        lines = [header] + [[str(i), *"gfyoab", text(), text(), f"{5 * rng.random():.2f}"] for i in range(40)]
        (folder / "train.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
        run(PROGRAMS / "anyorder", "prep", "--task", "stsb", "--input", folder / "train.tsv", "--vocab", vocabulary / "spiece.model",
            "--output", folder / task)
        return folder / task
    makers = {"classification": lambda: {"text": text(), "label": rng.randrange(3)},
              "entailment": lambda: {"premise": text(), "hypothesis": text(), "label": rng.randrange(3)},
              "multiple_choice": lambda: {"context": text(), "choices": [text() for _ in range(rng.randint(2, 3))], "label": 1},
              "span_extraction": question,
              "token_classification": tagged,
              "generation": lambda: {"source": text(), "target": text()}}
    with open(folder / f"{task}.jsonl", "w", encoding="utf-8") as out:
        for _ in range(40):
            out.write(json.dumps(makers[task]()) + "\n")
    run(PROGRAMS / "anyorder", "prep", "--examples", folder / f"{task}.jsonl", "--vocab", vocabulary / "spiece.model",
        "--output", folder / task)
    return folder / task


def launch(run_dir, settings, config="xlnet-tiny", ranks=1):
    """A run of one of the configurations with `settings` changed."""
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    run(PROGRAMS / "anyorder", "launch", "--config", CONFIGS / f"{config}.toml", "--run-dir", run_dir, "--ranks", ranks,
        *overrides)


def dumped_run(folder, settings, steps, *options, config="xlnet-tiny"):
    """(exported directory, dump of the first `steps` steps) of a run, all in a new folder."""
    work = Path(tempfile.mkdtemp(dir=folder))
    run_dir, exported, dumped = (work / kind for kind in ("run", "hf", "dump"))
    launch(run_dir, settings, config)
    export(run_dir, exported)
    dump(run_dir, steps, dumped, *options)
    return exported, dumped


def conclude(faults, verdict):
    """Says how it went; the exit status."""
    for fault in faults:
        print(f"FAULT in {fault}")
    print("FAILED" if faults else verdict)
    return 1 if faults else 0


def returned(directory, folder, name, *options):
    """The exported directory of a run that was made by importing `directory`."""
    run_dir, again = folder / f"{name}-run", folder / f"{name}-again"
    run(PROGRAMS / "anyorder", "import", "--format", "hf", "--input", directory,
        "--output", run_dir, *options)
    export(run_dir, again)
    return again


def export(run_dir, output, kind="hf", *options):
    run(PROGRAMS / "anyorder", "export", "--run-dir", run_dir, "--format", kind, "--output", output, *options)


def dump(run_dir, steps, output, *options):
    run(PROGRAMS / "parity_dump", run_dir, steps, output, *options)
