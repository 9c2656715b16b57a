#!/usr/bin/env python3
"""Made the checkpoint in this folder with TensorFlow 2.15.1: a narrow XLNet, laid out like xlnet_cased_L-24_H-1024_A-16.

Usage: make.py DIR. Element i of variable number k, by name, is k + i / 1024, so that each value tells where it belongs.
"""
import json
import math
import os
import sys

CONFIG = {"d_head": 4, "d_inner": 12, "d_model": 8, "ff_activation": "gelu", "n_head": 2, "n_layer": 2, "n_token": 14, "untie_r": True}


def shapes(config):
    d, heads, f, vocab, layers = (config[key] for key in ("d_model", "n_head", "d_inner", "n_token", "n_layer"))
    head = config["d_head"]
    yield "model/transformer/word_embedding/lookup_table", [vocab, d]
    yield "model/transformer/mask_emb/mask_emb", [1, 1, d]
    yield "model/lm_loss/bias", [vocab]
    for bias in ("r_w_bias", "r_r_bias", "r_s_bias"):
        yield f"model/transformer/{bias}", [layers, heads, head]
    yield "model/transformer/seg_embed", [layers, 2, heads, head]
    for layer in range(layers):
        prefix = f"model/transformer/layer_{layer}"
        for name in "qkvor":
            yield f"{prefix}/rel_attn/{name}/kernel", [d, heads, head]
        for part in ("rel_attn", "ff"):
            for name in ("gamma", "beta"):
                yield f"{prefix}/{part}/LayerNorm/{name}", [d]
        for name, shape in (("layer_1", [d, f]), ("layer_2", [f, d])):
            yield f"{prefix}/ff/{name}/kernel", shape
            yield f"{prefix}/ff/{name}/bias", shape[1:]
    # What a checkpoint of training and of a fine-tuned model has besides.
    yield "model/transformer/mask_emb/mask_emb/Adam", [1, 1, d]
    yield "model/sequnece_summary/summary/bias", [d]


if __name__ == "__main__":
    import numpy as np
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    for number, (name, shape) in enumerate(sorted(shapes(CONFIG))):
        values = number + np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 1024
        tf.get_variable(name, initializer=values)
    tf.train.get_or_create_global_step()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, os.path.join(sys.argv[1], "xlnet_model.ckpt"), write_meta_graph=False, write_state=False)
    with open(os.path.join(sys.argv[1], "xlnet_config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
