#!/usr/bin/env python3
"""Import and export at the widths of released models, whose vocabularies and matrices no other test has.

For each of CASES a process of its own writes a directory with random bits, in the type of the release and in several files:
transformers, by save_pretrained, where it has the class, else names and shapes of foreign_networks.py. `anyorder import` and
`anyorder export` follow. Every tensor must come back in its type, bit for bit, and config.json with every key; and neither program
may take more memory than launcher/huggingface/README.md says. Of the case LOGITS also the logits of a few tokens are compared with
transformers in fp32. One layer of the 8B shapes takes 6 GB of memory and 20 GB of disk, and 2 minutes.

Usage: released_shapes.py [--list] [--without-large] [NAME...], some of the cases only.
"""
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import cases
import families_parity
import foreign_networks
import hf_model
import masks
import run_programs
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.modeling_utils import no_init_weights, shard_checkpoint

LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
          "rope_type": "llama3"}
LOGITS = "Llama-3.2-1B, one layer"
TOKENS = 16
TOLERANCE = 1e-5
# Beside weights: the programs with their libraries, and pieces of tensors.
OTHER_MEMORY = 300e6
PIECE = 1 << 24


def llama(layers, dim, heads, keys, ffn, vocab, **other):
    return dict(num_hidden_layers=layers, hidden_size=dim, num_attention_heads=heads, num_key_value_heads=keys, intermediate_size=ffn,
                vocab_size=vocab, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=5e5, max_position_embeddings=131072,
                tie_word_embeddings=False, torch_dtype="bfloat16") | other


LLAMA_8B = llama(1, 4096, 32, 8, 14336, 128256, rope_scaling=LLAMA3, bos_token_id=128000, eos_token_id=128001, mlp_bias=False,
                 attention_bias=False)
QWEN_7B = llama(1, 3584, 28, 4, 18944, 152064, rms_norm_eps=1e-6, rope_theta=1e6, sliding_window=131072, use_sliding_window=False,
                max_window_layers=28, bos_token_id=151643, eos_token_id=151643)
LLADA_8B = dict(
    model_type="llada", architectures=["LLaDAModelLM"], d_model=4096, n_layers=1, n_heads=32, n_kv_heads=32, mlp_hidden_size=12288,
    mlp_ratio=4, vocab_size=126464, embedding_size=126464, max_sequence_length=4096, rms_norm_eps=1e-5, rope_theta=5e5, rope=True,
    rope_full_precision=True, alibi=False, block_type="llama", activation_type="silu", layer_norm_type="rms", include_bias=False,
    include_qkv_bias=False, weight_tying=False, mask_token_id=126336, eos_token_id=126081, pad_token_id=126081, torch_dtype="bfloat16")
DIT_SMALL = dict(hidden_dim=768, cond_dim=128, n_blocks=12, n_heads=12, vocab_size=50258, model_length=1024, dropout=0.1,
                 time_conditioning=False, return_dict=False, torch_dtype="float32")
BERT_LARGE = dict(hidden_size=1024, num_hidden_layers=1, num_attention_heads=16, intermediate_size=4096, vocab_size=30522)
ROBERTA_LARGE = BERT_LARGE | dict(vocab_size=50265, type_vocab_size=1, max_position_embeddings=514, layer_norm_eps=1e-5)
LARGE = ("Llama-3.1-8B, one layer", "A3 on Llama-3.1-8B, one layer", "Qwen2-7B, one layer", "Dream-7B, one layer",
         "LLaDA-8B, one layer", "Qwen3-0.6B", LOGITS)
# name: class of transformers and its settings, or None and a whole config.json.
CASES = {
    "Llama-3.1-8B, one layer": ("LlamaForCausalLM", LLAMA_8B),
    LOGITS: ("LlamaForCausalLM", LLAMA_8B | dict(
        hidden_size=2048, intermediate_size=8192, rope_scaling={**LLAMA3, "factor": 32.0}, tie_word_embeddings=True)),
    "A3 on Llama-3.1-8B, one layer": (None, LLAMA_8B | dict(model_type="llama", architectures=["LlamaTwoStreamForCausalLM"])),
    "Qwen2-7B, one layer": ("Qwen2ForCausalLM", QWEN_7B),
    "Dream-7B, one layer": (None, QWEN_7B | dict(model_type="Dream", architectures=["DreamModel"], mask_token_id=151666,
                                                 pad_token_id=151643)),
    "Qwen3-0.6B": (None, llama(28, 1024, 16, 8, 3072, 151936, head_dim=128, rms_norm_eps=1e-6, rope_theta=1e6, attention_bias=False,
                               tie_word_embeddings=True, model_type="qwen3", architectures=["Qwen3ForCausalLM"])),
    "LLaDA-8B, one layer": (None, LLADA_8B),
    "MDLM": (None, DIT_SMALL | dict(model_type="mdlm", architectures=["MDLM"])),
    "BD3-LM": (None, DIT_SMALL | dict(model_type="bd3lm", architectures=["BD3LM"], block_size=4, causal=False, adaln=True,
                                      cross_attn=True, attn_backend="flex")),
    "XLNet-Large, one layer": ("XLNetLMHeadModel", dict(d_model=1024, n_layer=1, n_head=16, d_inner=4096, vocab_size=32000)),
    "BERT-Large, one layer": ("BertForMaskedLM", BERT_LARGE),
    "RoBERTa-Large, one layer": ("RobertaForMaskedLM", ROBERTA_LARGE),
    "Longformer-Large, one layer": ("LongformerForMaskedLM", ROBERTA_LARGE | dict(max_position_embeddings=4098, attention_window=[512])),
    "GPT, one layer": ("OpenAIGPTLMHeadModel", dict(n_layer=1)),
    "GPT-2 XL, one layer": ("GPT2LMHeadModel", dict(n_embd=1600, n_head=25, n_layer=1)),
    "Transformer-XL, one layer": ("TransfoXLLMHeadModel", dict(n_layer=1)),
}
# Rows of positions that stand for padding come back as zeros; sinusoids are made anew.
PADDING_ROWS, BUFFERS = 2, ("transformer.pos_emb.inv_freq",)
# Second names that an export adds, because transformers 4.46 assigns tensors and does not tie them.
COPIES = {"lm_head.decoder.bias": "lm_head.bias"}


def fill(tensor):
    """Random bits but for the exponent's first, which is 0: signs, subnormal numbers and zeros among numbers below 2."""
    integer, first, size = (torch.int16, 0x4000, 1 << 16) if tensor.element_size() == 2 else (torch.int32, 0x40000000, 1 << 32)
    flat = tensor.detach().view(-1).view(integer)
    for piece in flat.split(PIECE):
        piece.copy_(torch.randint(-size // 2, size // 2, piece.shape, dtype=integer) & ~first)


def draw(tensor):
    """Values that make a network's numbers small."""
    for piece in tensor.detach().view(-1).split(PIECE):
        piece.copy_(torch.randn(piece.shape) * 0.02 if tensor.dim() > 1 else 1 + torch.randn(piece.shape) * 0.1)


def class_of(name):
    return hf_model.TransfoXLLMHeadModel if name == "TransfoXLLMHeadModel" else getattr(transformers, name)


def write_by_transformers(name, architecture, settings, directory):
    kind, settings = class_of(architecture), dict(settings)
    scaling = settings.pop("rope_scaling", None)
    config = kind.config_class(**settings)
    with no_init_weights():
        model = kind._from_config(config, torch_dtype=getattr(torch, settings.get("torch_dtype", "float32")))
    model.tie_weights()
    for parameter in model.parameters():
        (draw if name == LOGITS else fill)(parameter)
    if scaling:  # this transformers takes no such dictionary, and keeps it
        model.config.rope_scaling = scaling
    model.save_pretrained(directory, max_shard_size="1500MB")


def write_by_shapes(config, directory):
    directory.mkdir()
    dtype, weights = getattr(torch, config["torch_dtype"]), {}
    shapes = foreign_networks.shapes(config)
    if "n_blocks" in config:  # buffers of their files
        shapes["backbone.rotary_emb.inv_freq"] = (config["hidden_dim"] // config["n_heads"] // 2,)
    if config["model_type"] == "bd3lm":
        shapes |= {"sampling_eps_min": (), "sampling_eps_max": ()}
    for name, shape in shapes.items():
        weights[name] = torch.empty(shape, dtype=dtype)
        fill(weights[name])
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    shards, index = shard_checkpoint(weights, max_shard_size="1500MB", weights_name="model.safetensors")
    for file, held in shards.items():
        save_file(held, directory / file, {"format": "pt"})
    if index is not None:
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def write_vocabulary(directory):
    """XLNet's, of 32,000 pieces."""
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    special = dict(zip("<unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop>".split(), [2, 3, 3, 3, 3, 3, 3, 3, 4]))
    for text, kind in {**special, **{f"p{i}": 1 for i in range(9, 32000)}}.items():
        model.pieces.add(piece=text, score=-1.0, type=kind)
    (directory / "spiece.model").write_bytes(model.SerializeToString())


def write(name, directory):
    architecture, config = CASES[name]
    torch.manual_seed(7)
    if architecture is None:
        write_by_shapes(config, directory)
    else:
        write_by_transformers(name, architecture, config, directory)
    if architecture == "XLNetLMHeadModel":
        write_vocabulary(directory)


# A process counts the memory of the one that it was forked from; this one is small.
MEASURE = """import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)"""


def measured(*command):
    """Seconds and bytes of memory that a program took."""
    begin = time.monotonic()
    said = run_programs.run(sys.executable, "-c", MEASURE, *command)
    return time.monotonic() - begin, int(said.split()[-1]) * 1024


class Weights:
    """The tensors of a directory's files, one at a time."""

    def __init__(self, directory):
        self.files = [safe_open(path, "pt") for path in sorted(directory.glob("*.safetensors"))]
        self.file_of = {name: file for file in self.files for name in file.keys()}

    def bits(self, name):
        tensor = self.file_of[name].get_tensor(name)
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
        return str(tensor.dtype), tensor.reshape(-1, *tensor.shape[1:]).view(kind)


def tensor_faults(before, after):
    for name in sorted(set(before.file_of) - set(after.file_of)):
        yield f"{name} is lost"
    for name in sorted(set(after.file_of) - set(before.file_of)):
        copied = COPIES.get(name)
        if copied not in before.file_of:
            yield f"{name} is new"
        elif not torch.equal(before.bits(copied)[1], after.bits(name)[1]):
            yield f"{name} is not a copy of {copied}"
    for name in sorted(set(before.file_of) & set(after.file_of) - set(BUFFERS)):
        (kind, theirs), (kind_after, ours) = before.bits(name), after.bits(name)
        if name.endswith("position_embeddings.weight") and "bert." not in name.replace("roberta.", ""):
            theirs, ours = theirs[PADDING_ROWS:], ours[PADDING_ROWS:]
        if kind != kind_after or not torch.equal(theirs, ours):
            yield f"{name} is another tensor after import and export"


def memory_faults(before, imported, exported):
    sizes = [file.get_slice(name).get_shape() for name, file in before.file_of.items()]
    elements = [torch.Size(size).numel() for size in sizes]
    limit = 3 * 4 * max(elements)
    for program, used in (("import", imported), ("export", exported)):
        if used > limit + OTHER_MEMORY:
            yield f"{program} took {used / 1e6:.0f} MB, more than {limit / 1e6:.0f} MB and {OTHER_MEMORY / 1e6:.0f} MB"


def prepared_ids(work, vocab):
    ids = torch.randint(0, vocab, (400,)).tolist()
    (work / "ids.jsonl").write_text(json.dumps(ids) + "\n")
    run_programs.anyorder("prep", "--tokens", work / "ids.jsonl", "--vocab-size", vocab, "--eod-id", 128001, "--output", work / "shards",
                          "--quiet")
    return work / "shards"


@torch.no_grad()
def compare_logits(work, config, measures):
    run_programs.dump(work / "run", 1, work / "dump", "--forward-only")
    facts, = hf_model.read_steps(work / "dump", 1)
    tokens = facts["input"].long()
    masks.expect_text_order(facts)
    settings = {key: value for key, value in config.items() if key != "rope_scaling"}
    plain = transformers.LlamaConfig(**settings)
    model = transformers.LlamaForCausalLM.from_pretrained(work / "hf", config=plain, torch_dtype=torch.float32).eval()
    for layer in model.model.layers:  # which this transformers has only of older models
        layer.self_attn.rotary_emb.inv_freq = foreign_networks.frequencies(config, model.config.hidden_size // 32).float()
    hf_model.add_logits(measures, "logits", facts, hf_model.readout(model(tokens).logits, facts))


def compare(name, work, measures):
    _, config = CASES[name]
    measured(sys.executable, __file__, "--write", name, work / "hf")
    settings = {}
    if name == LOGITS:
        settings = {**families_parity.SETTINGS, "train.global_batch_size": 1, "sampling.seq_len": TOKENS,
                    "data.shards": prepared_ids(work, config["vocab_size"])}
    program = run_programs.PROGRAMS / "anyorder"
    seconds, used = zip(
        measured(program, "import", "--input", work / "hf", "--output", work / "run", *run_programs.options(settings)),
        measured(program, "export", "--run-dir", work / "run", "--output", work / "back", "--max-shard-size", "1500MB"))
    before, after = Weights(work / "hf"), Weights(work / "back")
    size = sum(path.stat().st_size for path in (work / "hf").glob("*.safetensors"))
    print(f"| {name} | {len(before.file_of)} in {len(before.files)}, {size / 1e6:.0f} MB | {seconds[0]:.0f} s, {used[0] / 1e6:.0f} MB "
          f"| {seconds[1]:.0f} s, {used[1] / 1e6:.0f} MB |", flush=True)
    if name == LOGITS:
        compare_logits(work, config, measures)
    configs = (cases.read_config(work / name) for name in ("hf", "back"))
    return [*tensor_faults(before, after), *cases.config_faults(*configs), *memory_faults(before, *used)]


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--write"]:
        return write(arguments[1], Path(arguments[2]))
    if arguments == ["--list"]:
        return print("\n".join(CASES))
    wanted = [name for name in CASES if name not in LARGE] if arguments == ["--without-large"] else arguments or list(CASES)
    print(hf_model.versions())
    print("| model | tensors in files | import | export |\n|---|---|---|---|")
    faults, measures = [], hf_model.Measures()
    for name in wanted:
        work = Path(tempfile.mkdtemp())
        try:
            found = [f"{name}: {fault}" for fault in compare(name, work, measures)]
            print(*(f"fault: {fault}\n" for fault in found), sep="", end="", flush=True)  # a later case may be stopped
            faults += found
        finally:
            shutil.rmtree(work)
    if measures.table():
        hf_model.print_header()
        hf_model.print_table(LOGITS, measures)
    faults += measures.exceeding(TOLERANCE, TOLERANCE)
    return run_programs.conclude(faults, "every tensor and every key of config.json came back")


if __name__ == "__main__":
    sys.exit(main())
