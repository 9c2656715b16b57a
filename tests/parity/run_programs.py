"""Runs the product on made-up text: prepare, train, export, dump."""
import json
import os
import random
import subprocess
import sys
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


def options(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def anyorder(*arguments):
    return run(PROGRAMS / "anyorder", *arguments)


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[0]} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def prepare_text(folder, vocab_size=300, documents=60, num_words=400, syllables=(1, 4)):
    """Shards of made-up text, in `folder`/shards: enough for four streams of a tiny network."""
    write_text(folder / "text.txt", documents, num_words, syllables)
    anyorder("prep", "--input", folder / "text.txt", "--output", folder / "shards", "--vocab-size", vocab_size, "--workers", 1, "--quiet")
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
        anyorder("prep", "--task", "stsb", "--input", folder / "train.tsv", "--vocab", vocabulary / "spiece.model", "--output", folder / task)
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
    anyorder("prep", "--examples", folder / f"{task}.jsonl", "--vocab", vocabulary / "spiece.model", "--output", folder / task)
    return folder / task


def launch(run_dir, settings, config="xlnet-tiny", ranks=1):
    """A run of one of the configurations with `settings` changed."""
    anyorder("launch", "--config", CONFIGS / f"{config}.toml", "--run-dir", run_dir, "--ranks", ranks, *options(settings))


def dumped_run(work, settings, steps, *dumped, config="xlnet-tiny"):
    """Trains work/run; its exported directory, work/hf, and the dump of its first `steps` steps."""
    launch(work / "run", settings, config)
    export(work / "run", work / "hf")
    dump(work / "run", steps, work / "dump", *dumped)
    return work / "hf", work / "dump"


def launch_on_two_ranks(work, settings, config="xlnet-tiny", kind="hf"):
    """Trains work/run; work/initial is an export of the weights before. (The learning rate of a first step is 0: work/first, of one step,
    ends with the weights that it began with.)"""
    launch(work / "first", {**settings, "train.steps": 1, "optimizer.warmup_steps": 1}, config, ranks=2)
    launch(work / "run", settings, config, ranks=2)
    export(work / "first", work / "initial", kind)


def metrics(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def conclude(faults, verdict):
    """Says how it went; the exit status."""
    for fault in faults:
        print(f"FAULT in {fault}")
    print("FAILED" if faults else verdict)
    return 1 if faults else 0


def import_model(directory, run_dir, settings):
    anyorder("import", "--format", "hf", "--input", directory, "--output", run_dir, *options(settings))


def returned(directory, folder, name, settings):
    """The exported directory of a run, folder/NAME-run, that was made by importing `directory`."""
    run_dir, again = folder / f"{name}-run", folder / f"{name}-again"
    import_model(directory, run_dir, settings)
    export(run_dir, again)
    return again


def export(run_dir, output, kind="hf", *others):
    anyorder("export", "--run-dir", run_dir, "--format", kind, "--output", output, *others)


def dump(run_dir, steps, output, *how):
    run(PROGRAMS / "parity_dump", run_dir, steps, output, *how)
