#!/usr/bin/env python3
"""30 optimizer steps on conversations (gpt_sft) here and in torch: whole networks and adapters, packed and not (README.md). The judge makes
the sequences itself, from the conversations and the pieces of the vocabulary, and asks the network for one conversation at a time. Judged as
in train_parity.py."""
import json
import random
import sys
import types
from functools import partial

import cases
import hf_model
import llama_parity
import peft_parity
import run_programs
import sentencepiece
import torch
import train_parity as comparison
import train_parity_reference as reference
import transformers
from safetensors.torch import load_file

STEPS, SLOTS = 30, 160
LOSS_BOUND = 1e-6  # relative, as in peft_parity.py
WEIGHTS_BOUND = 1e-6  # of all weights together, relative
TEMPLATE = "{role} : {content} ; "
OPTIMIZER = peft_parity.OPTIMIZER
SETTINGS = {**llama_parity.SETTINGS, "sampling.seq_len": SLOTS, "objective.name": "gpt_sft"}
TRAINING = {"model.dtype": "fp32", "optimizer.decay": "linear", "train.steps": STEPS, "checkpoint.every": 0, **reference.settings(OPTIMIZER)}
ADAPTERS = {"train.lora.rank": peft_parity.RANK, "train.lora.alpha": peft_parity.ALPHA}
LLAMA = ("LlamaForCausalLM", llama_parity.llama(num_key_value_heads=2, max_position_embeddings=SLOTS))
GPT2 = ("GPT2LMHeadModel", dict(vocab_size=llama_parity.VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=SLOTS, embd_pdrop=0.0,
                                resid_pdrop=0.0, attn_pdrop=0.0))
# Class and configuration of the saved model, what is trained, and how.
CASES = {
    "llama": (*LLAMA, {}),
    "llama, packed": (*LLAMA, {"sampling.pack_examples": "true"}),
    "llama, adapters": (*LLAMA, ADAPTERS),
    "llama, adapters, packed": (*LLAMA, {**ADAPTERS, "sampling.pack_examples": "true"}),
    "gpt2, packed": (*GPT2, {"sampling.pack_examples": "true"}),
}


def conversations():
    """With and without a system's message, of one to four answers; some end with a question, and one is too long."""
    rng = random.Random(6)
    say = lambda role: {"role": role, "content": " ".join(rng.choice(["ba", "ko", "mi", "nu", "ta"]) for _ in range(rng.randint(1, 5)))}
    for number in range(40):
        messages = [say("system")] if rng.random() < 0.4 else []
        for _ in range(9 if number == 0 else rng.randint(1, 3)):
            messages += [say("user"), say("assistant")]
        yield messages + ([say("user")] if rng.random() < 0.3 else [])


def sequence(messages, pieces, end_of_document):
    """The tokens that are read, and which of them are an answer's: of a conversation that is too long the end."""
    tokens, is_answer, prompt = [], [], ""
    for message in messages:
        prompt += f" {message['role']} :"
        if message["role"] != "assistant":
            prompt += f" {message['content']} ;"
            continue
        for text, answers in ((prompt.strip(), False), (f"{message['content']} ;", True)):
            ids = pieces.encode(text)
            tokens, is_answer = tokens + ids, is_answer + [answers] * len(ids)
        prompt = ""
    return (tuple(tokens) + (end_of_document,))[-SLOTS:], (is_answer + [True])[-SLOTS:]


def prepare(folder, text):
    """The dataset, and {tokens: which of them are an answer's}."""
    chats = list(conversations())
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chats))
    run_programs.anyorder("prep", "--examples", folder / "chats.jsonl", "--vocab", text / "spiece.model", "--chat-template", TEMPLATE,
                          "--whole-conversations", "--output", folder / "chats")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(text / "spiece.model"))
    end = json.loads((folder / "chats/dataset.json").read_text())["vocab_ids"]["eod"]
    return folder / "chats", dict(sequence(messages, pieces, end) for messages in chats)


def conversations_of(facts):
    """The tokens of each conversation that a step reads."""
    documents = facts["row_doc"].reshape(facts["input"].shape)
    return [tuple(tokens[own == document].tolist()) for tokens, own in zip(facts["input"], documents)
            for document in range(int(own.max()) + 1)]


def loss_of(model, known, texts):
    """The mean over all tokens of answers but the first of a sequence, which nothing predicts."""
    losses = []
    for tokens in texts:
        ids, is_answer = torch.tensor(tokens), torch.tensor(known[tokens])
        logits = model(input_ids=ids[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")[is_answer[1:]])
    return torch.cat(losses).mean()


def load(work, case, dtype):
    kind = getattr(transformers, case[0])
    if "train.lora.rank" in case[2]:
        return peft_parity.load_peft(work / "hf", work / "initial", peft_parity.Case(case[0], case[1]), dtype)
    saved = kind.from_pretrained(work / "hf", torch_dtype=dtype)
    with peft_parity.all_in(dtype):
        model = kind(saved.config)
    model.load_state_dict(saved.state_dict())
    return model.train()


def train(work, case, known, batches, dtype, seed=None):
    """What comparison.compare takes, and the model."""
    model = load(work, case, dtype)
    with peft_parity.all_in(dtype):
        # Norms by the names that reference.decays knows.
        parameters = {name.replace("ln_", "layer_norm_"): value for name, value in peft_parity.trained(model).items()}
        _, result = reference.optimize(parameters, OPTIMIZER, batches, lambda texts: loss_of(model, known, texts), seed)
    result["state"] = {f"weights/{name}": value.detach().double() for name, value in parameters.items()}
    return result, model


def our_state(work, case):
    weights = load_file(work / "trained/adapter_model.safetensors") if "train.lora.rank" in case[2] else cases.read_weights(work / "trained")
    return types.SimpleNamespace(state={f"weights/{name.replace('ln_', 'layer_norm_')}": value for name, value in weights.items()})


def all_weights_distance(ours, exact):
    """Relative. Without GPT-2's biases of keys: they change no probability, so their gradients are roundings, which Adam makes large."""
    state = {name: value for name, value in exact["state"].items() if "c_attn.bias" not in name}
    return comparison.total_distance("weights", ours.state, {"state": state})[0]


def eval_row(work, data, model, known):
    """The loss of all conversations, by anyorder eval."""
    with torch.no_grad(), peft_parity.all_in(torch.float64):
        exact = float(loss_of(model, known, list(known)))
    said = json.loads(run_programs.anyorder("eval", "--run-dir", work / "run", "--data", data, "--batches", 0, "--json"))["losses"][0]["nats"]
    return comparison.series_row("eval", [said], [exact], LOSS_BOUND)


def check_case(name, work, shards):
    case, (data, known) = CASES[name], prepare(work, shards["text"])
    kind = getattr(transformers, case[0])
    cases.save(cases.random_model(lambda: kind(kind.config_class(**case[1])), seed=11), work / "hf", shards["text"])
    run_programs.import_model(work / "hf", work / "base", {**SETTINGS, "data.shards": data})
    settings = {**TRAINING, **case[2], "train.init_from": work / "base", "data.shards": data}
    export = "peft" if "train.lora.rank" in case[2] else "hf"
    run_programs.launch_on_two_ranks(work, settings, work / "base/config", export)
    run_programs.export(work / "run", work / "trained", export)
    run_programs.dump(work / "run", STEPS, work / "batches", "--batches")
    batches = [conversations_of(facts) for facts in hf_model.read_steps(work / "batches", STEPS)]
    exact, model = train(work, case, known, batches, torch.float64)
    samples = [train(work, case, known, batches, torch.float32, seed)[0] for seed in range(comparison.SAMPLES)]
    metrics, ours = run_programs.metrics(work / "run"), our_state(work, case)
    rows = [comparison.series_row(key, [line[key] for line in metrics], exact[key], bound) for key, bound in (
        ("loss", LOSS_BOUND), ("grad_norm", comparison.LOSS_BOUND), ("lr", comparison.RATE_BOUND))]
    rows += [comparison.state_row("weights", ours, exact, samples), eval_row(work, data, model, known),
             comparison.Row("all weights", all_weights_distance(ours, exact), WEIGHTS_BOUND, "")]
    read = sum(len(texts) for texts in batches)
    print(f"\n{name}: loss {exact['loss'][0]:.4f} to {exact['loss'][-1]:.4f}, {read} conversations in {STEPS} steps", *rows, sep="\n", flush=True)
    return [f"{row.quantity}: {row.difference:.1e} is over {row.bound:.1e}, {row.where}" for row in rows if not row.ratio <= 1]


def main():
    torch.set_num_threads(1)
    print(f"{hf_model.versions()}, peft {peft_parity.peft.__version__}")
    return cases.check_each({name: partial(check_case, name) for name in sys.argv[1:] or CASES}, f"{STEPS} steps agree")


if __name__ == "__main__":
    sys.exit(main())
