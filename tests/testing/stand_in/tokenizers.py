"""In place of Hugging Face's package `tokenizers`, where tests must not need it: byte-level, with an id for each byte, 1 and more.

What the product must have set shows in the ids.
"""
import json
import os
import signal

SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
CHARACTER = {byte: chr(byte) for byte in SEEN}
CHARACTER.update({byte: chr(256 + n) for n, byte in enumerate(sorted(set(range(256)) - set(SEEN)))})


class Encoding:
    def __init__(self, ids):
        self.ids = ids


class AddedToken:
    def __init__(self, content):
        self.content = content


class Tokenizer:
    encode_special_tokens = False
    truncates = pads = True

    @staticmethod
    def from_str(text):
        tokenizer = Tokenizer()
        tokenizer.file = json.loads(text)
        if "broken" in json.dumps(tokenizer.file):
            raise ValueError("it is\nbroken")
        return tokenizer

    def no_truncation(self):
        self.truncates = False

    def no_padding(self):
        self.pads = False

    def encode_batch(self, texts, add_special_tokens=True):
        assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
        if any("kill me" in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        if any("refuse me" in text for text in texts):
            raise ValueError("no such text")
        print("a library may print")
        wrong = self.truncates or self.pads or add_special_tokens or not self.encode_special_tokens
        return [Encoding([300] if wrong else [1 + byte for byte in text.encode()]) for text in texts]

    def get_vocab(self, with_added_tokens=True):
        return {CHARACTER[byte]: byte + 1 for byte in range(256)} | {token["content"]: token["id"] for token in self.file["added_tokens"]}

    def get_added_tokens_decoder(self):
        return {token["id"]: AddedToken(token["content"]) for token in self.file["added_tokens"]}

    def to_str(self):
        return '{"decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}}'
