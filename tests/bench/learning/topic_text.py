"""Sentences of two topics, and labelled examples of them: what pretraining can know that a few labels cannot tell.

A topic is a set of words that the other does not have. A sentence has twelve words, each with 0.9 of its own topic and else of the other;
its label is its topic. Who knows every word's topic is right with 0.9997 (the majority of twelve, a tie by the coin): the known answer. A small
labelled set (32 sentences) shows six words in ten, most of them once; unlabelled sentences show all of them together with their like. A word
costs 12/13 ln 400 = 5.53 nats to who does not know the topic, 5.19 to who does.
"""

import json
import random
from math import comb

WORDS, LENGTH, OWN = 200, 12, 0.9  # words a topic


def best_accuracy():
    chance = [comb(LENGTH, k) * OWN ** k * (1 - OWN) ** (LENGTH - k) for k in range(LENGTH + 1)]
    return sum(chance[LENGTH // 2 + 1:]) + chance[LENGTH // 2] / 2


def words():
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    every = [a + b for a in syllables for b in syllables]
    random.Random(0).shuffle(every)
    return every[:WORDS], every[WORDS:2 * WORDS]


def sentence(draw, topics, topic):
    return " ".join(draw.choice(topics[topic if draw.random() < OWN else 1 - topic]) for _ in range(LENGTH))


def write_text(path, seed, sentences):
    """A document a sentence pair of one topic, so that only neighbours tell what a word is of."""
    draw, topics = random.Random(f"text {seed}"), words()
    with path.open("w") as out:
        for i in range(sentences):
            topic = draw.randrange(2)
            out.write(sentence(draw, topics, topic) + "\n\n")


def write_examples(path, seed, part, count):
    draw, topics = random.Random(f"examples {seed} {part}"), words()
    with path.open("w") as out:
        for i in range(count):
            out.write(json.dumps({"text": sentence(draw, topics, i % 2), "label": "ab"[i % 2]}) + "\n")
