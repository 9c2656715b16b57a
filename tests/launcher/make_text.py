"""Prints documents of made-up words: make_text.py SEED. The same bytes for the same seed."""
import random
import sys

random.seed(int(sys.argv[1]))


def word():
    return "".join(random.choice("bcdfghklmnprst") + random.choice("aeiou") for _ in range(random.randint(1, 3)))


words = [word() for _ in range(400)]
for _ in range(120):
    for _ in range(random.randint(5, 15)):
        print(" ".join(random.choice(words) for _ in range(random.randint(6, 14))).capitalize() + ".")
    print()
