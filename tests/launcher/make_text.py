"""Prints documents of made-up words: make_text.py SEED [DOCUMENTS WORDS]. The same bytes for the same arguments.

With a number of WORDS their frequencies fall as 1 / rank, as in real text; else all are as frequent.
"""
import random
import sys

random.seed(int(sys.argv[1]))
documents, count = (int(argument) for argument in sys.argv[2:] or (120, 400))


def word():
    return "".join(random.choice("bcdfghklmnprst") + random.choice("aeiou") for _ in range(random.randint(1, 3)))


words = [word() for _ in range(count)]
weights = [1 / (rank + 2) for rank in range(count)]


def sentence(length):
    if len(sys.argv) > 2:
        return random.choices(words, weights, k=length)
    return [random.choice(words) for _ in range(length)]


for _ in range(documents):
    for _ in range(random.randint(5, 15)):
        print(" ".join(sentence(random.randint(6, 14))).capitalize() + ".")
    print()
