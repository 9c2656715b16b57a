"""Kernel pooling and its ranker in numpy, written from the papers: features, scores, loss, gradient, folds and a training run.

Fresh random states each time; metrics_dump says what core/ranking makes of them.
"""
import json
import subprocess
import sys

try:
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

from run_programs import PROGRAMS, conclude

MU = np.array([1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9])
SIGMA = np.array([1e-3] + [0.1] * 10)
MASK = 0xFFFFFFFF
EXAMPLES = 10  # RandomPurpose::kExamples
BATCH, RATE, EVERY, PATIENCE = 64, 0.01, 100, 20
# Relative; some hundred times the rounding of a feature, so that training moves by more than
# rounding moves it.
NUDGE = 1e-12


def philox(counter, key0, key1):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ key0, b & MASK, (a >> 32) ^ c3 ^ key1, a & MASK
        key0, key1 = (key0 + 0x9E3779B9) & MASK, (key1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


class Draws:
    """The sequence of one (seed, step), as core/base/philox.h describes it; lane 0."""

    def __init__(self, seed, step):
        self.key = philox((EXAMPLES, step & MASK, step >> 32, 0), seed & MASK, seed >> 32)[:2]
        self.counter, self.step, self.waiting = 0, step & MASK, []

    def word(self):
        if not self.waiting:
            self.waiting = list(philox((self.counter, 0, 0, self.step), *self.key))
            self.counter += 1
        return self.waiting.pop(0)

    def below(self, bound):
        """Lemire's unbiased draw."""
        while True:
            high = self.word()
            product = (high << 32 | self.word()) * bound
            if product & 0xFFFFFFFFFFFFFFFF >= (1 << 64) % bound:
                return product >> 64


def unit(states):
    states = np.asarray(states, np.float32).astype(np.float64)
    length = np.linalg.norm(states, axis=1, keepdims=True)
    # Kept in fp32.
    return (states / np.where(length == 0, 1, length)).astype(np.float32).astype(np.float64)


def features(query, document):
    cosines = unit(query) @ unit(document).T
    kernels = np.exp(-((cosines[:, :, None] - MU) ** 2) / (2 * SIGMA**2)).sum(axis=1)
    return 0.01 * np.log(np.maximum(kernels, 1e-10)).sum(axis=0)


def loss_and_gradient(parameters, better, worse):
    """Mean hinge loss of pairs [n, 11] each, and its gradient."""
    one = np.ones((len(better), 1))
    x, y = np.hstack([better, one]), np.hstack([worse, one])
    high, low = np.tanh(x @ parameters), np.tanh(y @ parameters)
    margin = np.maximum(0, 1 - high + low)
    active = (margin > 0)[:, None] / len(better)
    return margin.mean(), (active * (-(1 - high**2)[:, None] * x + (1 - low**2)[:, None] * y)).sum(axis=0)


def pairs_of(values, grades):
    order = [(i, j) for i in range(len(grades)) for j in range(len(grades)) if grades[i] > grades[j]]
    return np.array([values[i] for i, _ in order]), np.array([values[j] for _, j in order])


def deal(count, folds, seed):
    order, draws = list(range(count)), Draws(seed, 0)
    for i in range(count - 1):
        j = i + draws.below(count - i)
        order[i], order[j] = order[j], order[i]
    return [sorted(order[fold::folds]) for fold in range(folds)]


def train(pairs, folds, fold, seed, max_steps):
    stopping = (fold + 1) % len(folds)
    learning = [pairs[q] for f, queries in enumerate(folds) if f not in (fold, stopping) for q in queries if len(pairs[q][0])]
    held_out = [pairs[q] for q in folds[stopping] if len(pairs[q][0])]

    def judge(parameters):
        return np.mean([loss_and_gradient(parameters, *pair)[0] for pair in held_out])

    parameters, first, second = np.zeros(12), np.zeros(12), np.zeros(12)
    best = judge(parameters), parameters.copy(), 0
    step = waited = 0
    while step < max_steps and waited < PATIENCE:
        step += 1
        draws, batch = Draws(seed, step), []
        for _ in range(BATCH):
            better, worse = learning[draws.below(len(learning))]
            place = draws.below(len(better))
            batch.append((better[place], worse[place]))
        gradient = loss_and_gradient(parameters, *map(np.array, zip(*batch)))[1]
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        parameters = parameters - RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        if step % EVERY == 0 or step == max_steps:
            loss, waited = judge(parameters), waited + 1
            if loss < best[0]:
                best, waited = (loss, parameters.copy(), step), 0
    return *best, step


def values_of(task):
    return [np.array([features(q["states"], np.reshape(d, (-1, task["dim"]))) for d in q["documents"]]) for q in task["queries"]]


def pairs_of_all(values, task):
    return [pairs_of(v, q["grades"]) for v, q in zip(values, task["queries"])]


class Training:
    """numpy's training on a task, and how far it moves, relative to the largest, when features change by NUDGE.

    Hinges and Adam's division by small moments magnify a rounding: by 10 in most draws that were looked at, by 2e9 in one.
    """

    def __init__(self, task, values, random):
        folds = deal(len(values), task["folds"], task["seed"])

        def run(changed):
            return train(pairs_of_all(changed, task), folds, task["fold"], task["seed"], task["max_steps"])

        self.folds = folds
        self.loss, self.parameters, self.step, self.steps = run(values)
        self.moved_loss, self.moved_parameters, self.has_same_steps = 0, 0, True
        for _ in range(2):
            loss, parameters, step, steps = run([v * (1 + NUDGE * random.choice([-1, 1], v.shape)) for v in values])
            self.moved_loss = max(self.moved_loss, abs(loss - self.loss) / self.loss)
            self.moved_parameters = max(self.moved_parameters, np.abs(parameters - self.parameters).max() / np.abs(self.parameters).max())
            self.has_same_steps &= (step, steps) == (self.step, self.steps)

    def proves_something(self):
        return self.has_same_steps and max(self.moved_loss, self.moved_parameters) < 1e-6


def random_task(random):
    """Relevant documents have tokens near some of the query's."""
    dim, tokens = 24, lambda: int(random.integers(1, 12))
    queries = []
    for _ in range(12):
        states = random.normal(size=(tokens(), dim)).astype(np.float32)
        grades = [int(grade) for grade in random.integers(0, 3, size=9)]
        documents = []
        for grade in grades:
            document = random.normal(size=(tokens() + grade, dim))
            for place in range(grade):
                near = states[random.integers(len(states))]
                document[place] = near + random.choice([0, 0.2, 0.6]) * random.normal(size=dim)
            documents.append(document.astype(np.float32).tolist())
        queries.append({"states": states.tolist(), "documents": documents, "grades": grades})
    queries[0]["grades"] = [1] * 9  # nothing to learn from
    queries[1]["documents"][0] = []
    queries[1]["documents"][1] = [[0.0] * dim]
    return {"dim": dim, "queries": queries, "weights": random.normal(size=11).tolist(), "bias": 0.1,
            "seed": int(random.integers(1 << 63)), "folds": 4, "fold": 2, "max_steps": 3000}


def main():
    faults = []

    def check(what, ours, theirs, bound):
        ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        off = np.max(np.abs(ours - theirs)) / max(1e-300, np.max(np.abs(theirs))) if ours.shape == theirs.shape else np.inf
        print(f"{what}: {off:.2g} of the largest, at most {bound:.2g}")
        if not off <= bound:
            faults.append(what)

    seed = int(np.random.SeedSequence().entropy % (1 << 32))
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    while True:
        task = random_task(random)
        values = values_of(task)
        training = Training(task, values, random)
        if training.proves_something():
            break
        print("drawn again: this training magnifies every rounding")
    asked = json.dumps({"kind": "ranker", **task})
    ours = json.loads(subprocess.run([PROGRAMS / "metrics_dump"], input=asked, check=True, capture_output=True, text=True).stdout)
    parameters = np.array([*task["weights"], task["bias"]])
    pairs = pairs_of_all(values, task)
    # A cosine may be off by the rounding of 24 products, which a kernel of width 1e-3 multiplies by
    # 1e3 times its distance in widths; where the sum is near 1e-10 that is 7 of them.
    check("features", ours["features"], values, 1e-11)
    check("scores", ours["scores"], [np.tanh(v @ parameters[:11] + parameters[11]) for v in values], 1e-11)
    loss, gradient = loss_and_gradient(parameters, *(np.concatenate([p[side] for p in pairs if len(p[side])]) for side in (0, 1)))
    check("loss", ours["loss"], loss, 1e-11)
    check("gradient", ours["gradient"], gradient, 1e-11)
    if ours["folds"] != training.folds:
        faults.append("folds")
    trained = ours["trained"]
    print(f"weights of step {training.step} of {training.steps}, validation loss {training.loss:.6f}")
    if (trained["step"], trained["num_steps"]) != (training.step, training.steps):
        faults.append(f"steps: {trained['step']} of {trained['num_steps']}")
    check("trained weights", [*trained["weights"], trained["bias"]], training.parameters, max(1e-11, training.moved_parameters))
    check("validation loss", trained["validation_loss"], training.loss, max(1e-11, training.moved_loss))
    return conclude(faults, "numpy agrees")


sys.exit(main())
