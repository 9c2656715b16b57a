#!/usr/bin/env python3
"""What pretraining, its objective, layer decay and label smoothing are worth in fine-tuning.

From a text that pretraining has not seen it makes four tasks, fine-tunes on each from every run that is given and from
random weights, with several seeds, and prints the held-out accuracy of each, or F1, median and spread:

  topic   which of eight documents a passage is from
  pairs   whether a sentence follows another one, or is from another document
  choice  which of four sentences goes on after three
  spans   a name that was taken out of a sentence, to be found in a passage that is longer than the window; a quarter of
          the questions have no answer there

Usage: finetuning.py --anyorder BIN --text FILE --work DIR --run xlnet=RUN --run dae=RUN [--labelled sst2=TRAIN,DEV]
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
        doc, other = draw.sample(range(len(docs)), 2)
        at = draw.randrange(len(docs[doc]) - 1)
        second = docs[doc][at + 1] if i % 2 else draw.choice(docs[other])
        yield {"premise": docs[doc][at], "hypothesis": second, "label": ["other", "next"][i % 2]}


def choice(docs, draw, count):
    for _ in range(count):
        doc = draw.randrange(len(docs))
        at = draw.randrange(len(docs[doc]) - 3)
        others = draw.sample([i for i in range(len(docs)) if i != doc], 3)
        choices = [draw.choice(docs[i]) for i in others]
        label = draw.randrange(4)
        choices.insert(label, docs[doc][at + 3])
        yield {"context": " ".join(docs[doc][at:at + 3]), "choices": choices, "label": label}


def spans(docs, draw, count):
    made = 0
    while made < count:
        doc = draw.randrange(len(docs))
        at = draw.randrange(len(docs[doc]) - 7)
        passage = docs[doc][at:at + 7]
        asked = draw.choice(passage)
        names = list(re.finditer(r"(?<=[a-z,] )[A-Z][\w]+(?: [A-Z][\w]+)*", asked))
        if not names:
            continue
        name = draw.choice(names)
        question = asked[:name.start()] + "who or what" + asked[name.end():]
        if made % 4 == 0:
            passage = [s for s in docs[(doc + 1) % len(docs)][:7]]
        text = " ".join(passage)
        place = text.find(asked) + name.start()
        answers = [] if made % 4 == 0 else [{"text": name.group(), "start": place}]
        made += 1
        yield {"question": question, "passage": text, "answers": answers}


TASKS = {
    "topic": (topic, "classification", {"objective.num_classes": 8}),
    "pairs": (pairs, "entailment", {"objective.num_classes": 2}),
    "choice": (choice, "multiple_choice", {"objective.num_classes": 4}),
    "spans": (spans, "span_extraction", {}),
}


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


def fine_tune(args, work, name, variant, seed):
    """Held-out accuracy at the end, or F1 of spans."""
    _, task, keys = TASKS.get(name, (None, "classification", {"objective.num_classes": 2}))
    config = "xlnet-span-tiny.toml" if task == "span_extraction" else "xlnet-classify-tiny.toml"
    run_dir = work / f"{name}-{variant['name']}-{seed}"
    values = {"objective.task": task, "data.shards": work / f"{name}-train", "eval.shards": work / f"{name}-dev",
              "eval.every": args.steps, "train.steps": args.steps, "train.seed": seed, "sampling.seq_len": args.seq_len,
              "checkpoint.every": 0, **keys, **variant["keys"]}
    if task == "multiple_choice":
        values["train.micro_batch_size"] = 2
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
    """SQuAD's F1 of the questions, with the threshold for "no answer" at which it is best."""
    predictions = run_dir / "predictions.jsonl"
    if not predictions.exists():
        run([args.anyorder, "predict", run_dir, "--data", held_out, "--output", predictions], run_dir / "predict.log")
    scored = subprocess.run([args.anyorder, "score", "--gold", held_out, "--predictions", predictions, "--json"],
                            capture_output=True, check=True, text=True).stdout
    return json.loads(scored)["results"][0]["metrics"]["best_f1"] / 100


def variants(args):
    runs = dict(one.split("=", 1) for one in args.run)
    first = next(iter(runs))
    made = [{"name": name, "keys": {"train.init_from": path}} for name, path in runs.items()]
    made.append({"name": "random", "keys": {}})
    for name, key, value in (("layer-decay", "optimizer.layer_decay", 0.75), ("smoothing", "objective.label_smoothing", 0.1)):
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
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--dev", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], help="SECTION.KEY=VALUE of every fine-tuning")
    parser.add_argument("--tasks", default=",".join(TASKS))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    write_examples(args, args.work)
    files = {name: [args.work / f"{name}-{part}.jsonl" for part in ("train", "dev")] for name in args.tasks.split(",") if name}
    files |= {one.split("=")[0]: one.split("=")[1].split(",") for one in args.labelled}
    print(f"| task | weights | median | {' | '.join('seed ' + s for s in args.seeds.split(','))} |")
    print("|---|---|---|" + "---|" * len(args.seeds.split(",")))
    for name, paths in files.items():
        prepare(args, args.work, name, paths)
        for variant in variants(args):
            found = [100 * fine_tune(args, args.work, name, variant, int(seed)) for seed in args.seeds.split(",")]
            cells = " | ".join(f"{value:.1f}" for value in found)
            print(f"| {name} | {variant['name']} | {statistics.median(found):.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
