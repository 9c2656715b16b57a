#!/usr/bin/env python3
"""Encodes texts with Hugging Face's `tokenizers`. anyorder-prep and anyorder start it for a
tokenizer.json.

Usage: tokenize_texts.py TOKENIZER.json

Over standard input and output, little-endian:
  request   uint32 number of texts; of each uint32 bytes and its UTF-8. What stands between two NUL
            is part of a chat template: special tokens in it are meant, and <|...|> must be one.
            Two NUL first: the rest is JSON, {"messages": [...], "told": N, "answer": bool}, of
            which the tokenizer's own chat template writes the last message's content and what
            closes it, or all between the first N messages and that. Number 2^32 - 1, and nothing behind it: what tokens are
  reply     uint32 kind, uint32 bytes; then, for kind
            0   of each text uint32 number of ids and uint32 ids; nothing in the first reply, which
                comes without a request when the tokenizer is loaded; of every id from 0 what it
                adds to a text, uint32 bytes and those, 0 where there is no token
            1   a message: the package cannot be used
            2   a message: the file or a text cannot be used
"""
import json
import os
import re
import struct
import sys

import foreign_files

OK, UNUSABLE, BAD_INPUT = 0, 1, 2
WHAT_TOKENS_ARE = 2**32 - 1
MARK = "\0"


def read_fully(stream, size):
    """`size` bytes. Ends the program where the stream ends: then nobody waits for a reply."""
    data = stream.read(size)
    if len(data) < size:
        raise SystemExit(0)
    return data


def reply(stream, kind, payload):
    stream.write(struct.pack("<II", kind, len(payload)) + payload)
    stream.flush()


def complain(stream, kind, message):
    # One line, whatever an exception says.
    reply(stream, kind, " ".join(message.split()).encode(errors="surrogateescape"))


def fail(stream, kind, message):
    complain(stream, kind, message)
    raise SystemExit(1)


def load(path, out):
    install = f"{sys.executable} -m pip install --upgrade tokenizers"
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        fail(out, UNUSABLE, f"{sys.executable} has no package tokenizers ({error}), which "
             f"'{path}' needs; install it: {install}")
    if not hasattr(Tokenizer, "encode_special_tokens"):
        fail(out, UNUSABLE, f"the package tokenizers of {sys.executable} is too old; install a "
             f"newer one: {install}")
    try:
        with open(path, encoding="utf-8") as file:  # the package opens no path that is not UTF-8
            tokenizer = Tokenizer.from_str(file.read())
    except Exception as error:  # whatever it is, its text goes to the user
        fail(out, BAD_INPUT, f"'{path}': tokenizers cannot load it ({error}); fetch it again, or "
             f"install a newer package: {install}")
    # A text that has "<mask>" in it must not hold the token that hides others.
    tokenizer.encode_special_tokens = True
    # The file may ask for both, for fine-tuning.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def decoders_of(decoder):
    """The kinds of decoders that one consists of."""
    if not decoder:
        return []
    if decoder["type"] != "Sequence":
        return [decoder["type"]]
    return [kind for part in decoder["decoders"] for kind in decoders_of(part)]


def byte_of_characters():
    """What characters stand for in tokens of byte-level BPE: those that can be seen, themselves."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(others)}


def id_of_word(tokenizer, vocab):
    """[an id that is a text by itself, beside which others show what they add to one], or []."""
    return next(([i] for token, i in vocab.items()
                 if token.isalnum() and tokenizer.decode([i], skip_special_tokens=False) == token), [])


def spellings(tokenizer):
    """The bytes that each id from 0 adds to a text, behind others or, where a word's end is marked,
    before others; of several ids together they may be one character."""
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    kinds = decoders_of(json.loads(tokenizer.to_str()).get("decoder"))
    found = {}
    if "ByteLevel" in kinds:
        bytes_of = byte_of_characters()
        for token, i in vocab.items():
            found[i] = b"".join(bytes([bytes_of[c]]) if c in bytes_of else c.encode() for c in token)
    else:
        word = id_of_word(tokenizer, vocab)
        length = len(tokenizer.decode(word, skip_special_tokens=False))
        is_behind = "BPEDecoder" not in kinds  # which writes a space behind what ends a word
        texts = tokenizer.decode_batch([word + [i] if is_behind else [i] + word
                                        for i in vocab.values()], skip_special_tokens=False)
        for text, i in zip(texts, vocab.values()):
            found[i] = (text[length:] if is_behind else text[:len(text) - length]).encode()
        if "ByteFallback" in kinds:
            for token, i in vocab.items():
                if re.fullmatch("<0x[0-9A-F]{2}>", token):
                    found[i] = bytes([int(token[3:5], 16)])
    for i, token in tokenizer.get_added_tokens_decoder().items():
        found[i] = token.content.encode()
    return [found.get(i, b"") for i in range(max(found, default=-1) + 1)]


class Marked:
    """Texts with parts of a chat template: special tokens by their ids, and what stands between
    them, template or not, as one text."""

    def __init__(self, tokenizer):
        added = tokenizer.get_added_tokens_decoder()
        self.ids = {token.content: i for i, token in added.items() if token.content}
        longest_first = sorted(self.ids, key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def runs(self, text):
        """Strings and ids in turn: a string, an id, a string, ... Raises ValueError."""
        runs = [""]
        for i, part in enumerate(text.split(MARK)):
            if i % 2 == 0:
                runs[-1] += part
                continue
            at = 0
            for match in self.special.finditer(part):
                runs[-1] += self.checked(part[at:match.start()])
                runs += [self.ids[match.group()], ""]
                at = match.end()
            runs[-1] += self.checked(part[at:])
        return runs

    @staticmethod
    def checked(part):
        unknown = re.search(r"<\|[^|<>]*\|>", part)
        if unknown:
            raise ValueError(f"the chat template has {unknown.group()}, which is no token of it; "
                             "pass another --chat-template")
        return part


class Unusable(Exception):
    """A package that is missing."""


class OwnTemplate:
    """The chat template of a tokenizer's directory, as transformers runs it."""

    def __init__(self, tokenizer_path):
        folder = os.path.dirname(os.path.abspath(tokenizer_path))
        name = "tokenizer_config.json"
        is_there = os.path.lexists(os.path.join(folder, name))
        config = foreign_files.read_object(folder, name) if is_there else {}
        try:
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise Unusable(f"{sys.executable} has no package jinja2 ({error}), which "
                           "--chat-template tokenizer needs; install it: "
                           f"{sys.executable} -m pip install jinja2") from error
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals["raise_exception"] = self.refuse
        self.template = environment.from_string(self.source_of(folder, config))
        self.tokens = {}
        for role in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"):
            token = config.get(role)
            self.tokens[role] = token.get("content", "") if isinstance(token, dict) else token or ""

    @staticmethod
    def source_of(folder, config):
        if os.path.lexists(os.path.join(folder, "chat_template.jinja")):
            return foreign_files.read_text(folder, "chat_template.jinja")
        template = config.get("chat_template")
        if isinstance(template, list):
            template = {one["name"]: one["template"] for one in template}.get("default")
        if not isinstance(template, str):
            raise ValueError(f"'{folder}' has no chat_template; pass --chat-template llada, chatml "
                             "or a text")
        return template

    @staticmethod
    def refuse(message):
        raise ValueError(f"the chat template refuses the conversation: {message}")

    def write(self, text, marked):
        """`text` without its two marks as text with marks. Raises ValueError."""
        asked = json.loads(text)
        messages = asked["messages"]
        for message in messages:
            if marked.special.search(message["content"]):
                raise ValueError("a message holds a special token, which the tokenizer's chat "
                                 "template would not tell from its own; remove it")
        told = messages[:asked["told"]]
        before = self.render(told, False) if told else ""
        prompt, whole = self.render(messages[:-1], True), self.render(messages, False)
        if not whole.startswith(prompt):
            raise ValueError("the tokenizer's chat template does not write the prompt first and "
                             "then the answer; pass --chat-template llada, chatml or a text")
        if not prompt.startswith(before):
            raise ValueError("the tokenizer's chat template writes what was said otherwise once "
                             "more follows; leave out --whole-conversations")
        return MARK + (whole[len(prompt):] if asked["answer"] else prompt[len(before):]) + MARK

    def render(self, messages, asks):
        return self.template.render(messages=messages, add_generation_prompt=asks, **self.tokens)


def main():
    source = os.fdopen(0, "rb")
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get between replies
    tokenizer = load(sys.argv[1], out)
    # The fast form computes no offsets; older packages lack it.
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    marked = own = None  # older packages lack what the first needs

    def runs_of(text):
        nonlocal marked, own
        if MARK not in text:
            return [text]
        marked = marked or Marked(tokenizer)
        if text.startswith(2 * MARK):
            own = own or OwnTemplate(sys.argv[1])
            text = own.write(text[2:], marked)
        return marked.runs(text)

    def ids_of(texts):
        runs = [runs_of(text) for text in texts]
        plain = [run for one in runs for run in one if isinstance(run, str)]
        encodings = iter(encode(plain, add_special_tokens=False))
        for one in runs:
            ids = []
            for run in one:
                ids += next(encodings).ids if isinstance(run, str) else [run]
            yield struct.pack(f"<{len(ids) + 1}I", len(ids), *ids)

    reply(out, OK, b"")
    while True:
        (count,) = struct.unpack("<I", read_fully(source, 4))
        is_about_tokens = count == WHAT_TOKENS_ARE
        texts = []
        for _ in range(0 if is_about_tokens else count):
            (size,) = struct.unpack("<I", read_fully(source, 4))
            texts.append(read_fully(source, size).decode())
        try:
            if is_about_tokens:
                parts = [struct.pack("<I", len(part)) + part for part in spellings(tokenizer)]
            else:
                parts = ids_of(texts)
            reply(out, OK, b"".join(parts))
        except Unusable as error:
            complain(out, UNUSABLE, str(error))
        except Exception as error:
            what = "tell what its tokens are" if is_about_tokens else "encode a text"
            complain(out, BAD_INPUT, f"'{sys.argv[1]}': tokenizers cannot {what} ({error})")


if __name__ == "__main__":
    main()
