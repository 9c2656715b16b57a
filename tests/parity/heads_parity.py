#!/usr/bin/env python3
"""Heads of tasks: classes of transformers imported, run by our network, exported again; and exports of our fine-tuned runs (README.md).
`anyorder import` must choose the task.
"""
import json
import random
import sys
from functools import partial

import cases
import families_parity
import hf_model
import masks
import run_programs
import sentencepiece
import torch
import transformers

TOLERANCE = families_parity.TOLERANCE
VOCAB = families_parity.VOCAB
SETTINGS = {**families_parity.SETTINGS, "sampling.seq_len": 48}
SPANS = {"sampling.passage_stride": 16, "sampling.max_question": 12}
CHOICE_BIASES = ("classifier.bias", "logits_proj.bias", "multiple_choice_head.summary.bias")
IDS = {"pad_token_id": 5, "bos_token_id": 1, "eos_token_id": 2}  # padding: of our vocabularies


def xlnet(**changes):
    return dict(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=2, d_inner=48, ff_activation="gelu_new", layer_norm_eps=1e-5,
                **IDS) | changes


def gpt(**changes):
    return dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=2, n_positions=64, **IDS) | changes


def of(family):
    return [{**settings, **IDS} for settings, _ in families_parity.SHAPES[family][1].values()]


# Settings of each family's configuration.
SHAPES = {
    "XLNet": [xlnet(), xlnet(n_layer=3, layer_norm_eps=1e-12), xlnet(d_model=96, n_head=12, ff_activation="relu"),
              xlnet(untie_r=True, clamp_len=9, d_inner=20), xlnet(d_model=40, n_head=4, layer_norm_eps=1e-2, mem_len=None)],
    "Bert": of("bert"), "Roberta": of("roberta"), "Longformer": of("longformer"),
    "OpenAIGPT": [gpt(), gpt(n_layer=1, n_embd=48, n_head=3, afn="relu"), gpt(n_layer=3, n_embd=24, n_head=1),
                  gpt(n_layer=4, n_embd=64, n_head=8), gpt(n_embd=50, n_head=5, layer_norm_epsilon=1e-3)],
    "GPT2": [gpt(), gpt(n_layer=1, n_embd=48, n_head=3, n_inner=20), gpt(n_layer=3, n_embd=24, n_head=1, activation_function="relu"),
             gpt(n_layer=4, n_embd=64, n_head=8), gpt(n_embd=50, n_head=5, layer_norm_epsilon=1e-3)],
}
CLASSES = {
    **{f"{family}For{task}": family for family in ("XLNet", "Bert", "Roberta", "Longformer")
       for task in ("SequenceClassification", "MultipleChoice", "QuestionAnswering", "TokenClassification")},
    "XLNetForQuestionAnsweringSimple": "XLNet",
    **{f"{family}{task}": family for family in ("OpenAIGPT", "GPT2") for task in ("ForSequenceClassification", "DoubleHeadsModel")},
}
SMALL = {**SETTINGS, **families_parity.SMALL}
CHOICES = {"objective.task": "multiple_choice", "objective.num_classes": 3}
PAIRS = {"objective.task": "entailment", "objective.num_classes": 3}
TAGS = {"objective.task": "token_classification", "objective.num_classes": 3, "objective.pooler": "false"}
EXACT = {"model.activation": "gelu_erf"}
# name: class of the export, configuration, data, what differs from SMALL.
RUNS = {
    "xlnet classes": ("XLNetForSequenceClassification", "xlnet-classify-tiny", "classification", {"objective.num_classes": 3}),
    "xlnet pairs": ("XLNetForSequenceClassification", "xlnet-classify-tiny", "entailment", PAIRS),
    "xlnet score": ("XLNetForSequenceClassification", "xlnet-classify-tiny", "similarity",
                    {"objective.task": "similarity", "objective.num_classes": 1}),
    "xlnet choices": ("XLNetForMultipleChoice", "xlnet-classify-tiny", "multiple_choice", CHOICES),
    "xlnet answers": ("XLNetForQuestionAnswering", "xlnet-span-tiny", "span_extraction", SPANS),
    "xlnet, no answer class": ("XLNetForQuestionAnswering", "xlnet-span-tiny", "span_extraction",
                               {**SPANS, "objective.answer_class": "false"}),
    "xlnet simple spans": ("XLNetForQuestionAnsweringSimple", "xlnet-span-tiny", "span_extraction",
                           {**SPANS, "objective.answer_class": "false", "objective.span_head": "simple"}),
    "xlnet tags": ("XLNetForTokenClassification", "xlnet-classify-tiny", "token_classification", TAGS),
    "bert classes": ("BertForSequenceClassification", "bert-classify-tiny", "classification", {"objective.num_classes": 3}),
    "bert spans": ("BertForQuestionAnswering", "bert-span-tiny", "span_extraction", SPANS),
    "bert tags": ("BertForTokenClassification", "bert-classify-tiny", "token_classification", TAGS),
    "longformer classes": ("LongformerForSequenceClassification", "longformer-classify-tiny", "classification",
                           {"objective.num_classes": 3, "objective.pooler": "true", "model.attention_windows": "8:8", **EXACT}),
    "longformer tags": ("LongformerForTokenClassification", "longformer-classify-tiny", "token_classification",
                        {**TAGS, "model.attention_windows": "8:8", **EXACT}),
    "gpt classes": ("OpenAIGPTForSequenceClassification", "gpt-classify-tiny", "classification",
                    {"objective.num_classes": 3, "objective.head_bias": "false", "model.ffn_dim": 128}),
    "gpt pairs": ("OpenAIGPTForSequenceClassification", "gpt-classify-tiny", "entailment",
                  {**PAIRS, "objective.head_bias": "false", "model.ffn_dim": 128}),
    "gpt2 choices": ("GPT2DoubleHeadsModel", "gpt-classify-tiny", "multiple_choice", {**CHOICES, "model.layer_norm": "pre"}),
}


def data_of(architecture, shape):
    if "Choice" in architecture or "Double" in architecture:
        return "multiple_choice"
    if "Question" in architecture:
        return "span_extraction"
    if "Token" in architecture:
        return "token_classification"
    return {3: "entailment", 4: "similarity"}.get(shape, "classification")


def random_model(architecture, settings, shape):
    of_task = {"multiple_choice": {"num_choices": 3}, "similarity": {"num_labels": 1, "problem_type": "regression"}, "span_extraction": {}}
    head = of_task.get(data_of(architecture, shape), {"num_labels": 3})
    kind = getattr(transformers, architecture)
    return cases.random_model(lambda: kind(kind.config_class(**settings, **head)), seed=shape)


def sequences_of(facts, length):
    """The texts of all lanes, each [sequences, length], padding at their ends; where CLS or another head's row is in them."""
    count = facts["input"].numel() // length
    rows = lambda name: facts[f"row_{name}"][:count * length].reshape(count, length)
    return {"input_ids": facts["input"].reshape(count, length).long(), "attention_mask": (rows("doc") != masks.DOC_PAD).long(),
            "token_type_ids": rows("seg").long(), "global_attention_mask": rows("glob").long()}


def pad_left(inputs):
    """XLNet's summary is of the last token."""
    shifts = (inputs["attention_mask"] == 0).sum(1)
    return {name: torch.stack([row.roll(int(shift)) for row, shift in zip(value, shifts)]) for name, value in inputs.items()}


def inputs_for(model, facts, length):
    inputs, kind = sequences_of(facts, length), model.config.model_type
    if kind != "longformer":
        del inputs["global_attention_mask"]
    if kind in ("openai-gpt", "gpt2"):  # whose classifiers look for the token before padding
        inputs["input_ids"].masked_fill_(inputs["attention_mask"] == 0, model.config.pad_token_id)
        del inputs["token_type_ids"], inputs["attention_mask"]
    return inputs


def span_pairs(model, facts, inputs):
    """(quantity, ours, theirs) of the tokens that may be chosen."""
    valid = facts["task_valid"] != 0
    both = lambda number, theirs: (facts[f"task_logits/{number}"][valid], theirs[valid])
    if not isinstance(model, transformers.XLNetForQuestionAnswering):
        result = model(**inputs)
        return [("starts", *both(0, result.start_logits)), ("ends", *both(1, result.end_logits))]
    hidden = model.transformer(**inputs, use_mems=False).last_hidden_state
    starts = facts["task_starts"].long()
    pairs = [("starts", *both(0, model.start_logits(hidden))),
             ("ends", *both(1, model.end_logits(hidden, start_positions=starts)))]
    result = model(**inputs, cls_index=facts["task_classifiers"].long(), p_mask=1 - valid.float())
    if "task_logits/3" in facts:
        return pairs + [("answers", facts["task_logits/3"][:, 0], result.cls_logits)]
    return pairs + [("no answer class", torch.zeros_like(result.cls_logits), result.cls_logits)]


@torch.no_grad()
def compare_logits(model, dump, length, task, measures):
    facts, = hf_model.read_steps(dump, 1)
    inputs, lanes = inputs_for(model, facts, length), len(facts["input"])
    if task == "span_extraction":
        for pair in span_pairs(model, facts, inputs):
            measures.add(*pair)
        return
    if task == "token_classification":  # of the tokens that begin a word
        theirs, is_word = model(**inputs).logits, facts["task_valid"] != 0
        measures.add("tags", facts["task_logits/0"].reshape(theirs.shape)[is_word], theirs[is_word])
        return
    if model.config.model_type == "xlnet":
        inputs = pad_left(inputs)
    if task == "multiple_choice":
        inputs = {name: value.reshape(lanes, -1, length) for name, value in inputs.items()}
        if "Double" in type(model).__name__:
            inputs["mc_token_ids"] = facts["task_rows"].long() % length
            theirs = model(**inputs).mc_logits
        else:
            theirs = model(**inputs).logits
        ours, valid = facts["task_logits/0"], facts["task_valid"] != 0
        # A bias that all choices have changes no probability; we have none.
        bias, = (value for name, value in model.named_parameters() if name in CHOICE_BIASES)
        measures.add("choices", ours[valid], (theirs - bias)[valid])
        return
    theirs = model(**inputs).logits
    if len(theirs) == 2 * lanes:  # GPT's pairs in both orders: the sum of their states is read
        theirs = theirs.reshape(lanes, 2, -1).sum(1)
    measures.add("classes", facts["task_logits/0"], theirs)


def compare_class(architecture, shape, work, shards):
    model = random_model(architecture, SHAPES[CLASSES[architecture]][shape], shape)
    task = data_of(architecture, shape)
    cases.save(model, work / "hf", shards["text"])
    settings = {**SETTINGS, "data.shards": shards[task]}
    if task in ("entailment", "similarity"):
        settings["objective.task"] = task
    if task == "span_extraction":
        settings |= SPANS
    back = run_programs.returned(work / "hf", work, "back", settings)
    run_programs.dump(work / "back-run", 1, work / "dump", "--forward-only")
    measures = hf_model.Measures()
    compare_logits(model, work / "dump", SETTINGS["sampling.seq_len"], task, measures)
    said, before = cases.read_config(work / "hf"), cases.read_weights(work / "hf")
    cases.blank_unused_positions(before, said)
    for name in CHOICE_BIASES if "num_choices" in said else ():  # zeros in an export
        if name in before:
            before[name].zero_()
    faults = cases.tensor_faults(before, cases.read_weights(back))
    return measures, faults + cases.config_faults(said, cases.read_config(back))


def is_max_context(windows, window, token):
    """_check_is_max_context of BERT's run_squad.py."""
    best, best_window = None, None
    for i, (begin, length) in enumerate(windows):
        if not begin <= token < begin + length:
            continue
        score = min(token - begin, begin + length - 1 - token) + 0.01 * length
        if best is None or score > best:
            best, best_window = score, i
    return best_window == window


@torch.no_grad()
def bert_answers(model, question, passage, ids, settings, max_answer, n_best=20):
    """(score, first token, last token) of the answers that write_predictions of BERT's run_squad.py chooses among, the best first."""
    question = question[:settings["sampling.max_question"]]
    room, windows, begin = settings["sampling.seq_len"] - len(question) - 3, [], 0
    while begin < len(passage):
        windows.append((begin, min(len(passage) - begin, room)))
        if sum(windows[-1]) == len(passage):
            break
        begin += min(windows[-1][1], settings["sampling.passage_stride"])
    found, first = [], len(question) + 2
    for i, (begin, length) in enumerate(windows):
        tokens = [ids["cls"], *question, ids["sep"], *passage[begin:begin + length], ids["sep"]]
        said = model(torch.tensor([tokens]), token_type_ids=torch.tensor([[0] * first + [1] * (length + 1)]))
        best = lambda logits: sorted(enumerate(logits[0].tolist()), key=lambda one: one[1], reverse=True)[:n_best]
        for start, start_logit in best(said.start_logits):
            for end, end_logit in best(said.end_logits):
                if not (first <= start < first + length and first <= end < first + length):
                    continue
                if not is_max_context(windows, i, begin + start - first) or end < start or end - start + 1 > max_answer:
                    continue
                found.append((start_logit + end_logit, begin + start - first, begin + end - first))
    return sorted(found, key=lambda one: one[0], reverse=True)


def answer_faults(model, work, shards, settings):
    """Questions whose best answer by `anyorder predict` is another than by BERT's code."""
    rng, model = random.Random(6), model.eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(shards / "spiece.model"))
    ids = json.loads((shards / "dataset.json").read_text())["vocab_ids"]
    text = lambda words: " ".join("".join(rng.choice("bkmnt") + rng.choice("aiou") for _ in range(rng.randint(1, 4))) for _ in range(words))
    questions = [{"question": text(rng.randint(1, 9)), "passage": text(rng.randint(3, 60))} for _ in range(100)]
    (work / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    faults = []
    for max_answer in (2, 5, 64):
        output = work / f"answers-{max_answer}.jsonl"
        run_programs.anyorder("predict", work / "run", "--data", work / "questions.jsonl", "--output", output, "--max-answer", max_answer)
        for one, line in zip(questions, output.read_text().splitlines()):
            tokens = pieces.encode(one["passage"])
            theirs = bert_answers(model, pieces.encode(one["question"]), tokens, ids, settings, max_answer)
            ours, near = json.loads(line)["answers"], [span for span in theirs if span[0] > theirs[0][0] - 1e-5]
            texts = [pieces.decode(tokens[begin:end + 1]).strip() for _, begin, end in near]
            said = ours[0]["text"] if ours else None
            if said not in (texts or [None]):
                faults.append(f"at most {max_answer} tokens: {said} for {texts} in {one['passage']}")
    return faults


def classes_of(shards):
    return json.loads((shards / "dataset.json").read_text())["examples"]["classes"]


def compare_run(name, work, shards):
    architecture, config, task, changes = RUNS[name]
    settings = {**SMALL, "data.shards": shards[task], **changes}
    export, dump = run_programs.dumped_run(work, settings, 1, "--forward-only", config=f"finetune/{config}")
    model, faults = cases.load_run(architecture, export)
    if task == "classification" and model.config.id2label != {0: "0", 1: "1", 2: "2"}:
        faults.append(f"its classes are called {model.config.id2label}")
    if task == "token_classification" and list(model.config.id2label.values()) != classes_of(shards[task]):
        faults.append(f"its classes are called {model.config.id2label}")
    if task == "similarity" and (model.config.problem_type, model.config.num_labels) != ("regression", 1):
        faults.append(f"it is no score: {model.config.problem_type}, {model.config.num_labels}")
    measures = hf_model.Measures()
    compare_logits(model, dump, settings["sampling.seq_len"], task, measures)
    if name == "bert spans":
        faults += answer_faults(model, work, shards[task], settings)
    back = run_programs.returned(export, work, "back", {"data.shards": shards[task]})
    return measures, faults + cases.tensor_faults(cases.read_weights(export), cases.read_weights(back))


def main():
    wanted = sys.argv[1:] or [*CLASSES, *RUNS]
    torch.set_num_threads(1)
    found = {f"{name} {shape + 1}": partial(compare_class, name, shape) for name in wanted if name in CLASSES for shape in range(5)}
    found |= {f"run, {name}": partial(compare_run, name) for name in wanted if name in RUNS}
    return cases.compare_each(found, TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
