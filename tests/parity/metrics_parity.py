#!/usr/bin/env python3
"""core/metrics against the implementations that benchmarks are reported with: scikit-learn, scipy, seqeval, SQuAD's evaluation (as
transformers carries that of 2.0; of 1.1 as restated here), gdeval.pl and trec_eval, on random and on nasty input.

Equal to the last bit: classification (macro F1 up to seven classes), everything of seqeval, SQuAD, gdeval and trec_eval. Correlations
are within 4 * 2^-53 of the exact value, computed in fractions, and within scipy's own rounding of scipy's.
"""
import collections
import functools
import itertools
import json
import math
import operator
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import warnings
from fractions import Fraction
from pathlib import Path

try:
    import ir_measures
    import numpy as np
    import pytrec_eval
    import scipy.stats
    import seqeval.metrics
    import sklearn.metrics
    from transformers.data.metrics import squad_metrics
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)
if shutil.which("perl") is None:
    print("SKIPPED: there is no perl for gdeval.pl")
    sys.exit(77)

warnings.filterwarnings("ignore")
EPSILON = 2.0**-53
# From Python 3.12 on sum() carries the rounding errors of floats along; the released evaluators ran
# on older ones.
squad_metrics.sum = lambda values: functools.reduce(operator.add, values, 0)
DUMP = Path(os.environ["ANYORDER_BIN"]) / "metrics_dump"
draw = random.Random(20261127)


def ours(cases):
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([DUMP], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def numbers(result):
    return [float.fromhex(text) for text in result]


def same(a, b):
    return a == b or math.isnan(a) and math.isnan(b)


def expect_equal(what, case, got, wanted):
    assert len(got) == len(wanted), (what, got, wanted)
    for i, (a, b) in enumerate(zip(got, wanted)):
        assert same(a, b), f"{what}, number {i}: {a!r}, not {b!r}, of {str(case)[:2000]}"


# --- classes

def classification_cases():
    for classes in (1, 2, 3, 5, 7, 14):
        for n in (1, 2, 3, 10, 100, 3000):
            yield [draw.randrange(classes) for _ in range(n)], [draw.randrange(classes) for _ in range(n)]
            gold = [draw.randrange(classes) for _ in range(n)]
            yield gold, [c if draw.random() < 0.9 else draw.randrange(classes) for c in gold]
            yield gold, [0] * n
            yield [1] * n, gold
            yield gold, gold
    yield [0, 1] * 40000, [0, 1, 1, 0] * 20000


def check_classification():
    cases = [{"kind": "classification", "gold": gold, "predicted": predicted} for gold, predicted in classification_cases()]
    for case, result in zip(cases, ours(cases)):
        gold, predicted = case["gold"], case["predicted"]
        got = numbers(result)
        f1 = [sklearn.metrics.f1_score(np.array(gold) == 1, np.array(predicted) == 1, zero_division=0.0),
              sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0.0)]
        wanted = [sklearn.metrics.accuracy_score(gold, predicted), *f1, sklearn.metrics.matthews_corrcoef(gold, predicted)]
        if len(set(gold) | set(predicted)) > 7:  # numpy's mean adds eight at a time
            assert abs(got[2] - wanted[2]) <= 16 * EPSILON, (got[2], wanted[2])
            got[2] = wanted[2]
        expect_equal("classification", case, got, wanted)
    return len(cases)


# --- entities

TAGS = ["O", *(f"{prefix}-{of}" for of in ("X", "Y") for prefix in "BIES")]
NASTY_TAGS = [*TAGS, *("B-X-Y I-X-Y B-x I-x B-- I-- B- I- B-_ I-_ B I E S E- S-O I-O B-é I-é B-è I-中".split())]


def drawn_tags(tags, n):
    """O often, and runs."""
    sentence = []
    while len(sentence) < n:
        tag = draw.choice(["O", draw.choice(tags)])
        sentence += [tag] + [tag.replace("B", "I")] * draw.choice([0, 0, 1, 3])
    return sentence[:n]


def check_entities():
    """Every sentence of up to five words of two types, and longer ones with any types."""
    sentences = [list(tags) for n in range(6) for tags in itertools.product(TAGS, repeat=n)]
    sentences += [draw.choices(NASTY_TAGS, k=draw.randrange(1, 30)) for _ in range(5000)]
    result = ours([{"kind": "entities", "sentences": sentences}])[0]
    for sentence, got in zip(sentences, result, strict=True):
        # There the last word is the entity's own.
        theirs = seqeval.metrics.sequence_labeling.get_entities(sentence)
        assert got == "".join(f"{of} {begin} {last + 1} " for of, begin, last in theirs), (sentence, got, theirs)
    return len(sentences)


def tagging_cases():
    iob = [tag for tag in TAGS if tag[0] in "OBI"]
    yield [[]], [[]]
    yield [["O"]], [["O"]]
    yield [["B-X"]], [["O"]]
    yield [["O"]], [["B-X"]]
    for tags in (iob, TAGS, NASTY_TAGS):
        for n in (1, 2, 5, 30, 300):
            for _ in range(20):
                given = [drawn_tags(tags, draw.randrange(1, 25)) for _ in range(n)]
                right = draw.choice([0.5, 0.9, 0.99])
                yield [[tag if draw.random() < right else draw.choice(tags) for tag in sentence] for sentence in given], given
                yield [drawn_tags(tags, len(sentence)) for sentence in given], given


def check_tagging():
    cases = [{"kind": "tagging", "predicted": predicted, "given": given} for predicted, given in tagging_cases()]
    for case, result in zip(cases, ours(cases), strict=True):
        both = case["given"], case["predicted"]
        wanted = [score(*both) for score in (seqeval.metrics.precision_score, seqeval.metrics.recall_score, seqeval.metrics.f1_score)]
        expect_equal("tagging", case, numbers(result), wanted)
    return len(cases)


# --- correlations

def exact_pearson(x, y):
    """To about 100 bits."""
    x, y = [Fraction(v) for v in x], [Fraction(v) for v in y]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    square = xy * xy / (sum((a - mx)**2 for a in x) * sum((b - my)**2 for b in y))
    scale = 1 << 400
    root = Fraction(math.isqrt(square.numerator * scale * scale // square.denominator), scale)
    return root if xy >= 0 else -root


def correlation_cases():
    for n in (2, 3, 5, 50, 1500):
        x = [draw.gauss(0, 1) for _ in range(n)]
        yield x, [draw.gauss(0, 1) for _ in range(n)]
        yield x, [v + draw.gauss(0, 0.1) for v in x]
        yield x, [-v for v in x]
        yield [draw.randrange(26) / 5 for _ in range(n)], [draw.randrange(4) for _ in range(n)]  # many ties, as STS-B's labels
        yield [1e8 + draw.random() for _ in range(n)], [draw.random() for _ in range(n)]  # a mean far away
        yield x, [0.1] * n
        yield [0.1] * n, [0.2] * n


def check_correlation():
    cases = [{"kind": "correlation", "x": x, "y": y} for x, y in correlation_cases()]
    for case, result in zip(cases, ours(cases)):
        x, y, n = case["x"], case["y"], len(case["x"])
        got = numbers(result)
        if len(set(x)) == 1 or len(set(y)) == 1:
            assert all(map(math.isnan, got)), (case, got)
            assert math.isnan(scipy.stats.spearmanr(x, y).statistic)
            continue
        ranks = scipy.stats.rankdata(x), scipy.stats.rankdata(y)
        for value, (a, b), theirs in ((got[0], (x, y), scipy.stats.pearsonr(x, y)), (got[1], ranks, scipy.stats.spearmanr(x, y))):
            exact = exact_pearson(a, b)
            # Deviations from a mean far from 0 carry the rounding of long double, 2^-64 of it.
            far = max(abs(float(v)) for v in [*a, *b]) / min(np.std(a), np.std(b))
            assert abs(Fraction(value) - exact) <= 4 * EPSILON + n * far * 2.0**-63, (value, float(exact))
            assert abs(value - theirs.statistic) <= (4 * n + 8) * (1 + far) * EPSILON, (value, theirs.statistic)
    return len(cases)


# --- SQuAD

PIECES = ["the", "The", "a", "An", "THE", "cat", "cats", "Σίσυφος", "ΟΔΟΣ", "İzmir", "é", "ÀÉ", "中国", "½", "x_y", "a-b", "don't", "the’", "‘a’",
          "“An”", "the,", "(a)", "...", "—", "…", "'", "", "1,000", "$5.00", "a.m.", "\u00a0", "\u2003", "\u3000", "\t", "\n", "\x1c", "\u200b",
          "a\u0301", "\u0345", "ﬁ", "Ⓐ", "ǅ", "ß", "ẞ", "٣", "a\u00adn", "`", "~", "^", "the\u2019a", "\U0001F600", "𝒜", "Ａ"]


def nasty_text():
    return draw.choice([" ", "", "\u00a0", "-"]).join(draw.choice(PIECES) for _ in range(draw.randrange(6)))


def squad_questions(n, version):
    for i in range(n):
        answers = [nasty_text() for _ in range(draw.randrange(0 if version == "2.0" else 1, 4))]
        prediction = draw.choice([nasty_text(), "", *answers, *[a.upper() + "!" for a in answers]])
        yield {"answers": answers, "prediction": prediction, "null_score": draw.choice([draw.gauss(0, 5), float(draw.randrange(-2, 3)), 0.0])}


def evaluate_1_1(questions):
    """Rajpurkar et al. 2016, restated."""
    exact = f1 = 0
    for question in questions:
        predicted = squad_metrics.normalize_answer(question["prediction"])
        exact += max(predicted == squad_metrics.normalize_answer(answer) for answer in question["answers"])
        best = 0
        for answer in question["answers"]:
            words, given = predicted.split(), squad_metrics.normalize_answer(answer).split()
            common = sum((collections.Counter(words) & collections.Counter(given)).values())
            if common:
                precision, recall = 1.0 * common / len(words), 1.0 * common / len(given)
                best = max(best, (2 * precision * recall) / (precision + recall))
        f1 += best
    return [100.0 * exact / len(questions), 100.0 * f1 / len(questions)]


def evaluate_2_0(questions, threshold):
    """As squad_evaluate of transformers does it, which asks for objects of its own."""
    golds = {i: [a for a in q["answers"] if squad_metrics.normalize_answer(a)] or [""] for i, q in enumerate(questions)}
    predictions = {i: q["prediction"] for i, q in enumerate(questions)}
    nulls = {i: q["null_score"] for i, q in enumerate(questions)}
    has_answer = {i: bool(q["answers"]) for i, q in enumerate(questions)}
    exact = {i: max(squad_metrics.compute_exact(a, predictions[i]) for a in golds[i]) for i in golds}
    f1 = {i: max(squad_metrics.compute_f1(a, predictions[i]) for a in golds[i]) for i in golds}
    cut = [squad_metrics.apply_no_ans_threshold(scores, nulls, has_answer, threshold) for scores in (exact, f1)]
    values = []
    for some in (list(golds), [i for i in golds if has_answer[i]], [i for i in golds if not has_answer[i]]):
        means = squad_metrics.make_eval_dict(*cut, qid_list=some) if some else {"exact": math.nan, "f1": math.nan}
        values += [means["exact"], means["f1"]]
    for scores in (exact, f1):
        values += squad_metrics.find_best_thresh(predictions, scores, nulls, has_answer)
    return values


def check_squad():
    cases = []
    for n in (1, 2, 7, 100, 1000):
        for _ in range(4):
            for version in ("1.1", "2.0"):
                case = {"kind": "squad", "version": version, "questions": list(squad_questions(n, version))}
                cases.append(case)
                if version == "2.0":
                    cases.append({**case, "threshold": draw.gauss(0, 3)})
    for case, result in zip(cases, ours(cases)):
        got = numbers(result)
        if case["version"] == "1.1":
            expect_equal("SQuAD 1.1", case, got[:2], evaluate_1_1(case["questions"]))
        else:
            expect_equal("SQuAD 2.0", case, got, evaluate_2_0(case["questions"], case.get("threshold", math.inf)))
    return len(cases)


def check_text():
    assigned = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    flags = ours([{"kind": "words", "code_points": assigned}])[0]
    wrong = [hex(c) for c, flag in zip(assigned, flags) if (flag == "1") != (chr(c).isalnum() or c == ord("_"))]
    assert not wrong, wrong
    letters = [chr(c) for c in assigned if chr(c).lower() != chr(c) or unicodedata.category(chr(c)) in ("Mn", "Lm", "Sk", "Cf") or
               not chr(c).isalnum() and c < 0x3000]
    texts = letters + [nasty_text() for _ in range(2000)] + ["".join(draw.choices(letters + ["Σ"] * 2000, k=6)) for _ in range(20000)]
    result = ours([{"kind": "texts", "texts": texts}])[0]
    for text, lower, normalized in zip(texts, result[::2], result[1::2]):
        assert lower == text.lower(), (text, lower, text.lower())
        assert normalized == squad_metrics.normalize_answer(text), (text, normalized)
    return len(texts)


# --- ranking

def ranking_cases():
    for n in (1, 2, 19, 20, 21, 100):
        for _ in range(6):
            documents = [f"clueweb09-en{draw.randrange(10**4):04}-{i:02}-{draw.choice('Aaz9')}" for i in range(n)]
            judged = {d: draw.choice([-2, 0, 0, 1, 2, 3, 4]) for d in documents if draw.random() < 0.7}
            judged.update({f"other{i}": draw.choice([-2, 0, 1, 4]) for i in range(draw.randrange(6))})
            judged["last"] = 1
            # Scores that are the same in float: trec_eval keeps them so.
            yield documents, judged, [draw.choice([draw.randrange(6) / 4, draw.gauss(0, 1)]) for _ in documents]


def gdeval(topics, folder):
    """By topic, NDCG@20 and ERR@20 of the script itself, which prints all digits here."""
    script = (Path(ir_measures.__file__).parent / "bin/gdeval.pl").read_text()
    assert "%.5f,%.5f" in script
    (folder / "gdeval.pl").write_text(script.replace("%.5f,%.5f", "%.17g,%.17g"))
    with open(folder / "qrels", "w") as qrels, open(folder / "run", "w") as run:
        for topic, (documents, judged, scores) in enumerate(topics, 1):
            qrels.writelines(f"{topic} 0 {d} {grade}\n" for d, grade in judged.items())
            run.writelines(f"{topic} Q0 {d} 1 {score!r} x\n" for d, score in zip(documents, scores))
    done = subprocess.run(["perl", folder / "gdeval.pl", folder / "qrels", folder / "run", "20"], capture_output=True, text=True, check=True)
    rows = [line.split(",") for line in done.stdout.splitlines()[1:]]
    return {int(row[1]): (float(row[2]), float(row[3])) for row in rows}


def check_ranking():
    topics = []
    for documents, judged, scores in ranking_cases():
        topics.append((documents, judged, [float(np.float32(score)) for score in scores]))
    cases = [{"kind": "ranking", "ids": d, "scores": s, "grades": [j.get(x, 0) for x in d], "judged": list(j.values())} for d, j, s in topics]
    with tempfile.TemporaryDirectory() as folder:
        theirs = gdeval(topics, Path(folder))
    trec = pytrec_eval.RelevanceEvaluator({str(i): j for i, (_, j, _) in enumerate(topics, 1)}, {"ndcg_cut.20", "map"}).evaluate(
        {str(i): dict(zip(d, s)) for i, (d, _, s) in enumerate(topics, 1)})
    for topic, (case, result) in enumerate(zip(cases, ours(cases)), 1):
        wanted = [*theirs[topic], trec[str(topic)]["ndcg_cut_20"], trec[str(topic)]["map"]]
        expect_equal("ranking", case, numbers(result), wanted)
    return len(cases)


def main():
    for name, check in (("classification", check_classification), ("entities", check_entities), ("tagging", check_tagging),
                        ("correlation", check_correlation), ("text", check_text), ("SQuAD", check_squad), ("ranking", check_ranking)):
        print(f"{name}: {check()} cases equal")


main()
