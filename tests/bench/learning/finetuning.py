#!/usr/bin/env python3
"""What pretraining, its objective, layer decay and label smoothing are worth in fine-tuning.

From a text that pretraining has not seen it makes four tasks, fine-tunes on each from every run that is given and from
random weights, with several seeds, and prints the held-out accuracy of each, or F1, and the median:

  topic   which of eight documents a passage is from
  pairs   whether two sentences go on after two others, or are from another document
  choice  which of four second halves, all from sentences of one document, is that of a sentence's first
  spans   a name that was taken out of a sentence, to be found in a passage that is longer than the window

The learning rate is the one of --rates that does best with a seed that is not reported; pretrained weights and random
ones have their own for each task.

Usage: finetuning.py --anyorder BIN --text FILE --work DIR --vocab DATA --run xlnet=RUN --run dae=RUN
                     [--labelled sst2=TRAIN,DEV]
TEXT: paragraphs a line, documents begin with " = Title = ". A finished fine-tuning in DIR is not run again.
"""
import argparse
import json
import random
import re
import statistics
import subprocess
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[3] / "configs" / "finetune"


def documents(path):
    parts = re.split(r"(?m)^ = [^=]+ = $", Path(path).read_text(encoding="utf-8"))
    texts = []
    for part in parts:
        lines = [line.strip() for line in part.splitlines() if len(line) > 40 and " = " not in line]
        sentences = [s.strip() + " ." for line in lines for s in line.split(" . ") if 30 < len(s) < 250]
        if len(sentences) >= 24:
            texts.append(sentences)
    return texts


def split(items):
    """Training and held-out parts, of which no sentence is in both."""
    border = len(items) * 7 // 10
    return items[:border], items[border:]


def topic(docs, draw, count):
    for _ in range(count):
        label = draw.randrange(min(8, len(docs)))
        i = draw.randrange(len(docs[label]) - 1)
        yield {"text": " ".join(docs[label][i:i + 2]), "label": f"document {label}"}


def pairs(docs, draw, count):
    for i in range(count):
        doc, other = draw.sample(docs, 2)
        at = draw.randrange(len(doc) - 3)
        begin = draw.randrange(len(other) - 1)
        second = doc[at + 2:at + 4] if i % 2 else other[begin:begin + 2]
        yield {"premise": " ".join(doc[at:at + 2]), "hypothesis": " ".join(second), "label": ["other", "next"][i % 2]}


def halves(sentence):
    words = sentence.split()
    return " ".join(words[:len(words) // 2]), " ".join(words[len(words) // 2:])


def choice(docs, draw, count):
    for _ in range(count):
        all_halves = list(map(halves, draw.sample(draw.choice(docs), 4)))
        label = draw.randrange(4)
        yield {"context": all_halves[label][0], "choices": [half[1] for half in all_halves], "label": label}


def spans(docs, draw, count):
    made = 0
    while made < count:
        doc = draw.choice(docs)
        at = draw.randrange(len(doc) - 5)
        asked = draw.choice(doc[at:at + 5])
        names = list(re.finditer(r"(?<=[a-z,] )[A-Z][\w]+(?: [A-Z][\w]+)*", asked))
        if not names:
            continue
        name = draw.choice(names)
        question = asked[:name.start()] + "who or what" + asked[name.end():]
        passage = " ".join(doc[at:at + 5])
        made += 1
        yield {"question": question, "passage": passage,
               "answers": [{"text": name.group(), "start": passage.find(asked) + name.start()}]}


# Steps and lengths that are enough here; [model] is that of --set.
TASKS = {
    "topic": (topic, "classification", {"objective.num_classes": 8, "sampling.seq_len": 96, "train.steps": 150}),
    "pairs": (pairs, "entailment", {"objective.num_classes": 2, "sampling.seq_len": 128, "train.steps": 250}),
    "choice": (choice, "multiple_choice", {"objective.num_classes": 4, "sampling.seq_len": 64, "train.micro_batch_size": 2,
                                           "train.steps": 300}),
    "spans": (spans, "span_extraction", {"objective.answer_class": "false", "sampling.seq_len": 112, "train.steps": 300,
                                         "sampling.max_question": 48, "sampling.passage_stride": 32}),
}
LABELLED = (None, "classification", {"objective.num_classes": 2, "sampling.seq_len": 64, "train.steps": 300})
REGULARISERS = {"layer-decay": ("optimizer.layer_decay", 0.75), "smoothing": ("objective.label_smoothing", 0.1)}
TUNING_SEED = 1000


def write_examples(args, work):
    docs = documents(args.text)
    training, held_out = zip(*[split(doc) for doc in docs])
    for name, (make, _, _) in TASKS.items():
        for part, texts, count in (("train", training, args.examples), ("dev", held_out, args.dev)):
            path = work / f"{name}-{part}.jsonl"
            lines = [json.dumps(example) for example in make(texts, random.Random(f"{name} {part}"), count)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(command, log):
    with open(log, "a", encoding="utf-8") as out:
        print("$", *command, file=out, flush=True)
        subprocess.run([str(word) for word in command], stdout=out, stderr=out, check=True)


def prepare(args, work, name, files):
    for part, path in zip(("train", "dev"), files):
        output = work / f"{name}-{part}"
        if (output / "dataset.json").exists():
            continue
        own = [] if part == "train" or name in ("choice", "spans") else ["--labels-from", work / f"{name}-train"]
        run([args.anyorder, "prep", "--examples", path, "--vocab", args.vocab, "--output", output, *own], work / "prep.log")


def fine_tune(args, work, name, variant, rate, seed):
    """Held-out accuracy at the end, or F1 of spans."""
    _, task, keys = TASKS.get(name, LABELLED)
    config = "xlnet-span-tiny.toml" if task == "span_extraction" else "xlnet-classify-tiny.toml"
    run_dir = work / f"{name}-{variant['name']}-{rate}-{seed}"
    values = {"objective.task": task, "data.shards": work / f"{name}-train", "eval.shards": work / f"{name}-dev",
              "eval.every": keys["train.steps"], "train.seed": seed, "optimizer.learning_rate": rate,
              "checkpoint.every": 0, **keys, **variant["keys"]}
    if not (run_dir / "done").exists():
        sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        sets += [word for assignment in args.set for word in ("--set", assignment)]
        run([args.anyorder, "launch", run_dir, "--config", CONFIGS / config, "--ranks", 1, *sets],
            work / f"{run_dir.name}.log")
        (run_dir / "done").touch()
    if task == "span_extraction":
        return f1_of(args, run_dir, work / f"{name}-dev")
    lines = [json.loads(line) for line in open(run_dir / "metrics.jsonl", encoding="utf-8")]
    return [line["eval_task_accuracy"] for line in lines if "eval_task_accuracy" in line][-1]


def f1_of(args, run_dir, held_out):
    """SQuAD's F1 of the questions."""
    predictions = run_dir / "predictions.jsonl"
    if not predictions.exists():
        run([args.anyorder, "predict", run_dir, "--data", held_out, "--output", predictions], run_dir / "predict.log")
    scored = subprocess.run([args.anyorder, "score", "--gold", held_out, "--predictions", predictions, "--json"],
                            capture_output=True, check=True, text=True).stdout
    return json.loads(scored)["results"][0]["metrics"]["f1"] / 100


def variants(args, task):
    runs = dict(one.split("=", 1) for one in args.run)
    first = next(iter(runs))
    made = [{"name": name, "keys": {"train.init_from": path}} for name, path in runs.items()]
    made.append({"name": "random", "keys": {}})
    for name, (key, value) in REGULARISERS.items():
        if task in args.regularised.split(","):
            made.append({"name": f"{first}-{name}", "keys": {"train.init_from": runs[first], key: value}})
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--run", action="append", required=True)
    parser.add_argument("--vocab", required=True, help="the dataset or spiece.model that the runs were pretrained on")
    parser.add_argument("--labelled", action="append", default=[], help="NAME=TRAIN,DEV: tables of two classes")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rates", default="5e-4,2e-3", help="learning rates to choose from")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--dev", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], help="SECTION.KEY=VALUE of every fine-tuning")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--regularised", default="topic,choice", help="tasks that layer decay and label smoothing are tried on")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    write_examples(args, args.work)
    files = {name: [args.work / f"{name}-{part}.jsonl" for part in ("train", "dev")] for name in args.tasks.split(",") if name}
    files |= {one.split("=")[0]: one.split("=")[1].split(",") for one in args.labelled}
    seeds = args.seeds.split(",")
    print(f"| task | weights | rate | median | {' | '.join('seed ' + seed for seed in seeds)} |")
    print("|---|---|---|---|" + "---|" * len(seeds))
    for name, paths in files.items():
        prepare(args, args.work, name, paths)
        best = {}  # rate, by whether weights are pretrained
        for variant in variants(args, name):
            is_pretrained = "train.init_from" in variant["keys"]
            if is_pretrained not in best:
                best[is_pretrained] = max(args.rates.split(","),
                                          key=lambda rate: fine_tune(args, args.work, name, variant, rate, TUNING_SEED))
            rate = best[is_pretrained]
            found = [100 * fine_tune(args, args.work, name, variant, rate, int(seed)) for seed in seeds]
            cells = " | ".join(f"{value:.1f}" for value in found)
            print(f"| {name} | {variant['name']} | {rate} | {statistics.median(found):.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
