"""Reads exported files with nothing but json and struct: check_export.py HF_DIR RUN_DIR SHARDS."""
import filecmp
import glob
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ckpt"))
from read_safetensors import read  # noqa: E402

hf, run, shards = sys.argv[1:]
header, data = read(f"{hf}/model.safetensors")
assert header.pop("__metadata__")["format"] == "pt"
config = json.load(open(f"{hf}/config.json"))
vocab, d, heads, head, ffn, layers = (
    config[key] for key in ("vocab_size", "d_model", "n_head", "d_head", "d_inner", "n_layer"))
assert config["architectures"] == ["XLNetLMHeadModel"] and config["model_type"] == "xlnet"
assert config["n_token"] == vocab and config["ff_activation"] == "gelu_new" and heads * head == d
assert (config["mem_len"], config["reuse_len"]) == (48, 32)

expected = {"transformer.mask_emb": [1, 1, d], "transformer.word_embedding.weight": [vocab, d], "lm_loss.bias": [vocab]}
for i in range(layers):
    attention, feed = f"transformer.layer.{i}.rel_attn.", f"transformer.layer.{i}.ff."
    expected.update({attention + name: [d, heads, head] for name in "qkvor"})
    expected.update({attention + f"r_{name}_bias": [heads, head] for name in "wrs"})
    expected[attention + "seg_embed"] = [2, heads, head]
    for part in (attention, feed):
        expected.update({part + "layer_norm.weight": [d], part + "layer_norm.bias": [d]})
    expected.update({feed + "layer_1.weight": [ffn, d], feed + "layer_1.bias": [ffn],
                     feed + "layer_2.weight": [d, ffn], feed + "layer_2.bias": [d]})
assert {name: entry["shape"] for name, entry in header.items()} == expected
assert all(entry["dtype"] == "F32" for entry in header.values())

# Every tensor is the named piece of the checkpoint's flat parameters, read as its format tells.
checkpoint = sorted(glob.glob(f"{run}/checkpoints/step-*[0-9]"))[-1]
format_page = (Path(__file__).parents[2] / "ckpt/FORMAT.md").read_text()
exec(format_page.split("```python\n")[1].split("```")[0])
for name, entry in header.items():
    first, last = entry["data_offsets"]
    assert read_parameter(checkpoint, name) == (entry["shape"], data[first:last]), name  # noqa: F821
# The file of the first rank carries the table itself.
saved, _ = read(sorted(glob.glob(f"{checkpoint}/*.safetensors"))[0])
table = json.loads(json.load(open(f"{checkpoint}/MANIFEST.json"))["metadata"])["parameters"]
assert json.loads(saved["__metadata__"]["contents.master"]) == table

assert filecmp.cmp(f"{hf}/spiece.model", f"{shards}/spiece.model", shallow=False)
tokenizer = json.load(open(f"{hf}/tokenizer_config.json"))
assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast" and tokenizer["padding_side"] == "left"
assert "token_type_ids" in tokenizer["model_input_names"]
assert json.load(open(f"{hf}/special_tokens_map.json"))["mask_token"] == "<mask>"
