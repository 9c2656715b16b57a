#!/usr/bin/env python3
"""A collection whose relevance is known: concepts of six words each that mean the same, of which a query has two and a relevant
document only the four others, so that no comparison of words can find it.

Usage: make_collection.py FOLDER    makes text.txt (to pretrain on), docs.jsonl, docs.trec, topics.txt, first.run, qrels.txt
"""
import json
import random
import sys
from pathlib import Path

CONCEPTS, DOCUMENTS, RELEVANT = 20, 16, 4  # a topic


def main():
    folder, rng = Path(sys.argv[1]), random.Random(5)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = sorted({"".join(rng.sample(syllables, 3)) for _ in range(200)})[:CONCEPTS * 6]
    rng.shuffle(words)
    concepts = [words[i * 6:i * 6 + 6] for i in range(CONCEPTS)]
    fillers = ["the", "of", "and", "with", "about"]

    def sentence(of, length):
        return " ".join(rng.choice(fillers if rng.random() < 0.25 else of) for _ in range(length))

    with open(folder / "text.txt", "w") as out:
        for _ in range(1500):
            of = rng.choice(concepts)
            out.write("".join(sentence(of, 10) + "\n" for _ in range(4)) + "\n")
    documents, run, qrels, topics = {}, [], [], []
    for number, of in enumerate(concepts, 1):
        topics.append(f"{number}:the {of[0]} of {of[1]}")
        ranked = []
        for place in range(DOCUMENTS):
            about = of if place < RELEVANT else rng.choice([other for other in concepts if other is not of])
            # Of two grades: half of a document of grade 1 is about something else.
            grade = 0 if place >= RELEVANT else 1 + place % 2
            other = rng.choice(concepts) if grade == 1 else about
            name = f"d{number:02}-{place:02}"
            documents[name] = sentence(about[2:], 12) + " " + sentence(other[2:], 12)
            ranked.append(name)
            # Not every document that is not relevant is judged, and spam is not relevant.
            if grade or place % 3:
                qrels.append(f"{number} 0 {name} {grade if grade else -2 if place % 3 == 1 else 0}")
        rng.shuffle(ranked)
        run += [f"{number} Q0 {name} {rank} {-rank} chance" for rank, name in enumerate(ranked, 1)]
    (folder / "docs.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in documents.items()))
    (folder / "docs.trec").write_text("".join(
        f"<DOC>\n<DOCNO> {i} </DOCNO>\n<TITLE>no</TITLE>\n<TEXT>\n<P>{t}</P></TEXT>\n</DOC>\n" for i, t in documents.items()))
    for name, lines in (("topics.txt", topics), ("first.run", run), ("qrels.txt", qrels)):
        (folder / name).write_text("\n".join(lines) + "\n")


main()
