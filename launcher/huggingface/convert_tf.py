#!/usr/bin/env python3
"""Converts the checkpoint of a released XLNet (TensorFlow) to what `anyorder import` reads.

Usage: convert_tf.py DIR

DIR is an unpacked release such as xlnet_cased_L-24_H-1024_A-16: xlnet_config.json, spiece.model, xlnet_model.ckpt.index and
xlnet_model.ckpt.data-*. Writes DIR/model.safetensors, under the names of XLNetLMHeadModel, and DIR/config.json; neither may exist.
Values are not changed. Optimizer state and heads of other tasks stay out, the latter by name. Needs Python alone; checksums of the
tensors are not verified, their sizes are.
Exit statuses: 0 done, 64 bad command line, 65 bad input, 74 the output could not be written.

The format is TensorFlow's tensor bundle (core/util/tensor_bundle, core/protobuf/tensor_bundle.proto): an index, which is a LevelDB
table (doc/table_format.md) of names and BundleEntryProto, and files of raw little-endian tensors.
"""
import array
import json
import math
import operator
import os
import re
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/prep"))  # in the source tree
import foreign_files
import safetensors_writer
from safetensors_writer import fail

MODEL, CONFIG = "xlnet_model.ckpt", "xlnet_config.json"
FETCH_AGAIN = "fetch the release again"
FLOAT = 1  # DataType.DT_FLOAT
FOOTER_BYTES, TABLE_MAGIC = 48, 0xDB4775248B80FB57
LAYER = r"model/transformer/layer_(\d+)/"
# Theirs and ours. The weights of dense layers are [in, out] there and [out, in] here.
NAMES = [(r"model/transformer/word_embedding/lookup_table", "transformer.word_embedding.weight"),
         (r"model/transformer/mask_emb/mask_emb", "transformer.mask_emb"),
         (LAYER + r"rel_attn/([qkvor])/kernel", r"transformer.layer.\1.rel_attn.\2"),
         (LAYER + r"(rel_attn|ff)/LayerNorm/gamma", r"transformer.layer.\1.\2.layer_norm.weight"),
         (LAYER + r"(rel_attn|ff)/LayerNorm/beta", r"transformer.layer.\1.\2.layer_norm.bias"),
         (LAYER + r"ff/(layer_[12])/kernel", r"transformer.layer.\1.ff.\2.weight"),
         (LAYER + r"ff/(layer_[12])/bias", r"transformer.layer.\1.ff.\2.bias"),
         (r"model/lm_loss/weight", "lm_loss.weight"),
         (r"model/lm_loss/bias", "lm_loss.bias")]
TRANSPOSED = re.compile(LAYER + r"ff/layer_[12]/kernel")
# One tensor for all layers: a row of each with untie_r, else one that they share.
STACKED = re.compile(r"model/transformer/(r_w_bias|r_r_bias|r_s_bias|seg_embed)")
STACKED_RANK = {"seg_embed": 3}  # of a layer's part; the others have 2
OPTIMIZER = re.compile(r"global_step|beta[12]_power|.*/(Adam|Adam_1|adam_m|adam_v)")


def varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def fields(message):
    """(number, value) of a protobuf message: integers, or the bytes of what has a length."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        if key & 7 == 0:
            value, position = varint(message, position)
        elif key & 7 == 2:
            size, position = varint(message, position)
            value, position = message[position:position + size], position + size
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, position = int.from_bytes(message[position:position + size], "little"), position + size
        yield key >> 3, value


def block_entries(table, handle):
    """(key, value) of a table's block; handle: where it is, as two varints."""
    begin, position = varint(handle, 0)
    size, _ = varint(handle, position)
    block, compression = table[begin:begin + size], table[begin + size]
    if compression != 0:
        raise ValueError("it is compressed")
    (restarts,) = struct.unpack("<I", block[-4:])
    position, key = 0, b""
    while position < len(block) - 4 * (restarts + 1):
        shared, position = varint(block, position)
        fresh, position = varint(block, position)
        length, position = varint(block, position)
        key = key[:shared] + block[position:position + fresh]
        position += fresh
        yield key, block[position:position + length]
        position += length


def read_index(path):
    """{name: {"shape", "type", "shard", "begin", "size"}} and the number of data files."""
    with open(path, "rb") as file:
        table = file.read()
    footer = table[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != TABLE_MAGIC:
        raise ValueError("it does not end as an index does")
    _, position = varint(footer, 0)
    _, position = varint(footer, position)
    entries, shards = {}, 1
    for _, handle in block_entries(table, footer[position:]):
        for key, value in block_entries(table, handle):
            if not key:  # BundleHeaderProto: num_shards, endianness
                header = dict(fields(value))
                shards = header.get(1, 1)
                if header.get(2, 0) != 0:
                    raise ValueError("its tensors are big-endian")
                continue
            entry = {"shape": [], "type": 0, "shard": 0, "begin": 0, "size": 0}
            for number, part in fields(value):
                if number == 2:  # TensorShapeProto of Dim
                    entry["shape"] = [operator.index(dict(fields(dim)).get(1, 0)) for kind, dim in fields(part) if kind == 2]
                elif number == 7:
                    raise ValueError(f"'{key.decode()}' is cut into slices")
                elif number in (1, 3, 4, 5):
                    entry[{1: "type", 3: "shard", 4: "begin", 5: "size"}[number]] = operator.index(part)
            entries[key.decode()] = entry
    return entries, shards


class Bundle:
    def __init__(self, directory, model):
        index = os.path.join(directory, f"{model}.index")
        try:
            foreign_files.inside(directory, f"{model}.index")
            self.entries, shards = read_index(index)
            if shards > len(self.entries):
                raise ValueError(f"it names {shards} files for {len(self.entries)} tensors")
        except OSError as error:
            fail(65, f"'{index}' cannot be read ({error.strerror}); {FETCH_AGAIN}")
        except (ValueError, IndexError, KeyError, TypeError, struct.error) as error:
            fail(65, f"'{index}' is damaged ({error}); {FETCH_AGAIN}")
        try:
            self.paths = [foreign_files.inside(directory, f"{model}.data-{shard:05}-of-{shards:05}") for shard in range(shards)]
        except ValueError as error:
            fail(65, f"{error}")
        for name, entry in self.entries.items():
            path = self.paths[entry["shard"]] if entry["shard"] < shards else index
            if path == index or not os.path.isfile(path) or os.path.getsize(path) < entry["begin"] + entry["size"]:
                fail(65, f"'{path}' lacks bytes of '{name}'; {FETCH_AGAIN}")

    def read(self, name, begin, size):
        entry = self.entries[name]
        with open(self.paths[entry["shard"]], "rb") as file:
            file.seek(entry["begin"] + begin)
            return file.read(size)


def transposed(data, rows, columns):
    values = array.array("f", data)
    return b"".join(values[column::columns].tobytes() for column in range(columns))


def converted(bundle, config):
    """The tensors for safetensors_writer, and the variables that have no place in a language model."""
    tensors, left_out = {}, []

    def add(ours, name, shape, begin=0):
        size = 4 * math.prod(shape)
        if TRANSPOSED.fullmatch(name):
            tensors[ours] = ("F32", shape[::-1], 4, lambda: transposed(bundle.read(name, begin, size), *shape))
        else:
            tensors[ours] = ("F32", shape, 4, lambda: bundle.read(name, begin, size))

    for name, entry in bundle.entries.items():
        shape, stacked = entry["shape"], STACKED.fullmatch(name)
        ours = next((re.sub(pattern, theirs, name) for pattern, theirs in NAMES if re.fullmatch(pattern, name)), None)
        if not stacked and ours is None:
            if not OPTIMIZER.fullmatch(name):
                left_out.append(name)
            continue
        layers = config["n_layer"]
        rows = shape[1:] if stacked and config["untie_r"] else shape
        if (entry["type"] != FLOAT or entry["size"] != 4 * math.prod(shape) or
                TRANSPOSED.fullmatch(name) and len(shape) != 2 or
                stacked and (len(rows) != STACKED_RANK.get(stacked[1], 2) or rows != shape and shape[0] != layers)):
            fail(65, f"'{name}' is of type {entry['type']} and shape {shape}, which is not that of {CONFIG}; use the files of one release")
        if ours:
            add(ours, name, shape)
        for layer in range(layers if stacked else 0):
            begin = 4 * math.prod(rows) * layer if rows != shape else 0
            add(f"transformer.layer.{layer}.rel_attn.{stacked[1]}", name, rows, begin)
    return tensors, left_out


def read_config(directory):
    try:
        config = foreign_files.read_object(directory, CONFIG)
        bool(config["untie_r"]), operator.index(config["n_token"])
        if operator.index(config["n_layer"]) not in range(1, 10001):
            raise ValueError(f"n_layer {config['n_layer']}")
    except OSError as error:
        fail(65, f"'{error.filename}' cannot be read ({error.strerror}); name the directory of an unpacked release")
    except (ValueError, KeyError, TypeError) as error:
        fail(65, f"'{os.path.join(directory, CONFIG)}' is damaged ({error}); {FETCH_AGAIN}")
    return config


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        fail(64, "usage: convert_tf.py DIR")
    directory = sys.argv[1]
    weights, description = (os.path.join(directory, name) for name in ("model.safetensors", "config.json"))
    for path in (weights, description):
        if os.path.lexists(path):
            fail(64, f"'{path}' exists; remove it, or convert in a copy of the directory")
    config = read_config(directory)
    tensors, left_out = converted(Bundle(directory, MODEL), config)
    try:
        safetensors_writer.write(tensors, weights)
        partial = f"{description}.partial-{os.getpid()}"
        with open(partial, "x", encoding="utf-8") as file:
            json.dump({"architectures": ["XLNetLMHeadModel"], "model_type": "xlnet", **config, "vocab_size": config["n_token"]},
                      file, indent=2)
            file.write("\n")
        os.rename(partial, description)
    except OSError as error:
        fail(74, f"'{error.filename or directory}' was not written: {error.strerror}")
    if left_out:
        print(f"left out, because pretraining does not use it: {', '.join(left_out)}")
    print(f"wrote {len(tensors)} tensors to {weights}")


main()
