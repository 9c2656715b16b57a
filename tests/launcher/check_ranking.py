#!/usr/bin/env python3
"""Whether a re-ranking of make_collection.py's first.run is a run of the same documents, and how good it is.

Usage: check_ranking.py FOLDER RUN LEAST    its mean NDCG@5 must be LEAST, and that of chance is printed, too
"""
import math
import sys
from collections import defaultdict
from pathlib import Path


def read_run(path):
    topics = defaultdict(list)
    for line in path.read_text().splitlines():
        topic, q0, document, rank, score, tag = line.split(" ")
        assert q0 == "Q0" and int(rank) == len(topics[topic]) + 1, line
        topics[topic].append((float(score), document))
    return topics


def ndcg(documents, grades, depth=5):
    gains = [2 ** grades.get(document, 0) - 1 for _, document in documents]
    best = sorted((2**grade - 1 for grade in grades.values()), reverse=True)
    discounted = [sum(gain / math.log2(2 + i) for i, gain in enumerate(some[:depth])) for some in (gains, best)]
    return discounted[0] / discounted[1]


def main():
    folder, least = Path(sys.argv[1]), float(sys.argv[3])
    first, ranked = read_run(folder / "first.run"), read_run(folder / sys.argv[2])
    grades = defaultdict(dict)
    for line in (folder / "qrels.txt").read_text().splitlines():
        topic, _, document, grade = line.split()
        grades[topic][document] = max(0, int(grade))
    assert list(first) == list(ranked), "other topics, or another order"
    for topic, documents in ranked.items():
        assert sorted(d for _, d in documents) == sorted(d for _, d in first[topic]), topic
        scores = [score for score, _ in documents]
        assert scores == sorted(scores, reverse=True) and -1 <= scores[-1] and scores[0] <= 1, topic
    before, after = (sum(ndcg(run[t], grades[t]) for t in run) / len(run) for run in (first, ranked))
    print(f"NDCG@5: chance {before:.3f}, re-ranked {after:.3f}")
    sys.exit(after < least)


main()
