#!/usr/bin/env python3
"""What pretraining, its objective, layer decay and label smoothing are worth in fine-tuning.

From a text that pretraining has not seen it makes four tasks, fine-tunes on each from every run that is given and from
random weights, with several seeds, and prints the held-out accuracy of each, or F1, and the median:

  topic   which of eight documents a passage is from
  pairs   whether a question, a sentence without one of its names, is of this sentence or of another one with a name
  choice  which of four sentences of one document, all with names, the question is of
  spans   the name that is asked for, to be found in a passage that is longer than the window

The learning rate is the one of --rates that does best with a seed that is not reported; pretrained weights and random
ones have their own for each task.

With --related two more tasks are made of a table of classes: whether two texts are of one, and which of four texts is of
the class of another one.

Usage: finetuning.py --anyorder BIN --text FILE --work DIR --vocab DATA --run xlnet=RUN --run dae=RUN
                     [--labelled sst2=TRAIN,DEV]
TEXT: paragraphs a line, documents begin with " = Title = ". A finished fine-tuning in DIR is not run again.
"""
import json
import random
import re
from pathlib import Path
from typing import NamedTuple

from programs import command_line, metrics_of, parsed, print_header, print_row, run, train


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


NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w]+(?: [A-Z][\w]+)*")


def with_names(sentences):
    return [sentence for sentence in sentences if NAME.search(sentence)]


def sentences_of_one(docs, draw, count):
    """So many sentences with names, all of one document."""
    enough = [named for named in map(with_names, docs) if len(named) >= count]
    return draw.sample(draw.choice(enough), count)


def question(sentence, draw):
    """The sentence without one of its names, and that name as a match."""
    name = draw.choice(list(NAME.finditer(sentence)))
    return sentence[:name.start()] + "who or what" + sentence[name.end():], name


def pairs(docs, draw, count):
    for i in range(count):
        asked, other = sentences_of_one(docs, draw, 2)
        yield {"premise": question(asked, draw)[0], "hypothesis": asked if i % 2 else other, "label": ["no", "yes"][i % 2]}


def choice(docs, draw, count):
    for _ in range(count):
        sentences = sentences_of_one(docs, draw, 4)
        label = draw.randrange(4)
        yield {"context": question(sentences[label], draw)[0], "choices": sentences, "label": label}


def spans(docs, draw, count):
    for _ in range(count):
        doc = draw.choice([doc for doc in docs if with_names(doc[:-5])])
        at = draw.choice([i for i in range(len(doc) - 5) if with_names(doc[i:i + 5])])
        asked = draw.choice(with_names(doc[at:at + 5]))
        text, name = question(asked, draw)
        passage = " ".join(doc[at:at + 5])
        yield {"question": text, "passage": passage,
               "answers": [{"text": name.group(), "start": passage.find(asked) + name.start()}]}


# Steps and lengths that are enough here; [model] is that of --set.
TASKS = {
    "topic": (topic, "classification", {"objective.num_classes": 8, "sampling.seq_len": 96, "train.steps": 150}),
    "pairs": (pairs, "entailment", {"objective.num_classes": 2, "sampling.seq_len": 112, "train.steps": 300}),
    "choice": (choice, "multiple_choice", {"objective.num_classes": 4, "sampling.seq_len": 96, "train.micro_batch_size": 2,
                                           "train.steps": 200}),
    "spans": (spans, "span_extraction", {"objective.answer_class": "false", "sampling.seq_len": 112, "train.steps": 300,
                                         "sampling.max_question": 48, "sampling.passage_stride": 32}),
}
TAGGED = ("token_classification", {"objective.pooler": "false", "sampling.seq_len": 96, "train.steps": 300})
LABELLED = ("classification", {"sampling.seq_len": 64, "train.steps": 300})


def same_class(rows, draw, count):
    """Of rows (text, class): whether two texts are of one class."""
    for i in range(count):
        (text, kind), (other, other_kind) = draw.sample(rows, 2)
        while (kind == other_kind) != bool(i % 2):
            other, other_kind = draw.choice([row for row in rows if row[0] != text])
        yield {"premise": text, "hypothesis": other, "label": ["no", "yes"][i % 2]}


def which_class(rows, draw, count):
    """Which of four texts of different classes is of the class of another one."""
    for _ in range(count):
        text, kind = draw.choice(rows)
        kinds = draw.sample(sorted({row[1] for row in rows} - {kind}), 3) + [kind]
        draw.shuffle(kinds)
        choices = [draw.choice([row[0] for row in rows if row[1] == one and row[0] != text]) for one in kinds]
        yield {"context": text, "choices": choices, "label": kinds.index(kind)}


RELATED = {
    "pairs": (same_class, "entailment", {"sampling.seq_len": 128, "train.steps": 300}),
    "choice": (which_class, "multiple_choice", {"objective.num_classes": 4, "sampling.seq_len": 96, "train.global_batch_size": 8,
                                                "train.micro_batch_size": 2, "train.steps": 200}),
}
REGULARISERS = {"layer-decay": ("optimizer.layer_decay", 0.75), "smoothing": ("objective.label_smoothing", 0.1)}
TUNING_SEED = 1000


class Task(NamedTuple):
    name: str
    kind: str
    keys: dict
    files: list  # of examples: those to train on, and held-out ones


def write(args, name, make, texts):
    """Files of examples that are made of training and of held-out texts."""
    files = []
    for part, own, count in zip(("train", "dev"), texts, (args.examples, args.dev)):
        files.append(args.work / f"{name.replace(' ', '-')}-{part}.jsonl")
        lines = [json.dumps(example) + "\n" for example in make(own, random.Random(f"{name} {part}"), count)]
        files[-1].write_text("".join(lines), encoding="utf-8")
    return files


def tasks_of(args):
    texts = list(zip(*[split(doc) for doc in documents(args.text)]))
    for name in filter(None, args.tasks.split(",")):
        make, kind, keys = TASKS[name]
        yield Task(name, kind, keys, write(args, name, make, texts))
    tables = {}
    for given, settings in ((args.labelled, LABELLED), (args.tagged, TAGGED)):
        for name, files in (one.split("=", 1) for one in given):
            tables[name] = files.split(",")
            yield Task(name, *settings, tables[name])
    for table in filter(None, args.related.split(",")):
        rows = [[line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()[1:]] for path in tables[table]]
        for name, (make, kind, keys) in RELATED.items():
            yield Task(f"{table}-{name}", kind, keys, write(args, f"{table} {name}", make, rows))


def prepare(args, task):
    for part, path in zip(("train", "dev"), task.files):
        output = args.work / f"{task.name}-{part}"
        if (output / "dataset.json").exists():
            continue
        source = ["--task", task.name, "--input", path] if task.kind == "token_classification" else ["--examples", path]
        if part == "dev" and task.kind in ("classification", "entailment"):
            source += ["--labels-from", args.work / f"{task.name}-train"]
        run([args.anyorder, "prep", *source, "--vocab", args.vocab, "--output", output, "--case", args.case], args.work / "prep.log")


def fine_tune(args, task, variant, rate, seed):
    """Held-out accuracy at the end, or F1 of spans or entities."""
    training, held_out = args.work / f"{task.name}-train", args.work / f"{task.name}-dev"
    classes = json.loads((training / "dataset.json").read_text(encoding="utf-8"))["examples"].get("classes")
    own = {"objective.num_classes": len(classes)} if classes else {}
    config = "xlnet-span-tiny.toml" if task.kind == "span_extraction" else "xlnet-classify-tiny.toml"
    values = {"objective.task": task.kind, "data.shards": training, "eval.shards": held_out, "eval.every": task.keys["train.steps"],
              "optimizer.learning_rate": rate}
    run_dir = train(args, f"finetune/{config}", f"{task.name}-{variant['name']}-{rate}", seed, values,
                    fixed={**own, **task.keys, **variant["keys"]})
    if task.kind == "span_extraction":
        return f1_of(args, run_dir, held_out)
    metric = "eval_task_f1" if task.kind == "token_classification" else "eval_task_accuracy"
    return [line[metric] for line in metrics_of(run_dir) if metric in line][-1]


def f1_of(args, run_dir, held_out):
    """SQuAD's F1 of the questions."""
    predictions = run_dir / "predictions.jsonl"
    if not predictions.exists():
        run([args.anyorder, "predict", run_dir, "--data", held_out, "--output", predictions], run_dir / "predict.log")
    scored = run([args.anyorder, "score", "--gold", held_out, "--predictions", predictions, "--json"], run_dir / "predict.log")
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
    parser = command_line(__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--run", action="append", required=True)
    parser.add_argument("--vocab", required=True, help="the dataset or spiece.model that the runs were pretrained on")
    parser.add_argument("--case", choices=("cased", "uncased"), default="cased", help="as the runs' text was prepared")
    parser.add_argument("--labelled", action="append", default=[], help="NAME=TRAIN,DEV: tables (text, class)")
    parser.add_argument("--related", default="", help="names of --labelled that NAME-pairs and NAME-choice are made of as well")
    parser.add_argument("--tagged", action="append", default=[], help="NAME=TRAIN,DEV: files of an official task of words with tags")
    parser.add_argument("--rates", default="5e-4,2e-3", help="learning rates to choose from")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--dev", type=int, default=400)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--regularised", default="topic,choice", help="tasks that layer decay and label smoothing are tried on")
    args = parsed(parser)
    tasks = list(tasks_of(args))
    print_header("task | weights | rate", args)
    for task in tasks:
        prepare(args, task)
        best = {}  # rate, by whether weights are pretrained
        for variant in variants(args, task.name):
            is_pretrained = "train.init_from" in variant["keys"]
            if is_pretrained not in best:
                best[is_pretrained] = max(args.rates.split(","),
                                          key=lambda rate: fine_tune(args, task, variant, rate, TUNING_SEED))
            rate = best[is_pretrained]
            found = [100 * fine_tune(args, task, variant, rate, seed) for seed in args.seeds]
            print_row(f"{task.name} | {variant['name']} | {rate}", found, digits=1)


if __name__ == "__main__":
    main()
