"""What the records say: Markdown tables and figures."""

import math
from statistics import mean, stdev

import charts

# Two-sided 95 % points of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def spread(values, digits=3):
    """'mean ± sd'"""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def each(values, digits=3):
    return ", ".join(f"{v:.{digits}f}" for v in values)


def cells(values):
    values = list(values)
    return [spread(values), each(values)]


def verdict(differences):
    """Whether the mean of paired differences is told from 0 by a t test at 5 %."""
    if len(differences) < 2:
        return "one seed"
    half_width = STUDENT[min(9, len(differences) - 1)] * stdev(differences) / math.sqrt(len(differences))
    return f"{'told from 0' if abs(mean(differences)) > half_width else 'within noise'} (± {half_width:.3f})"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def select(records, **values):
    return [r for r in records if all(r.get(key) == value for key, value in values.items())]


def mean_curve(lines):
    """Curves of several seeds with the same steps, averaged."""
    return [(points[0][0], mean(y for _, y in points)) for points in zip(*lines)]


def unigram_tables(records, out):
    rows = [[r["spans"], r["targets"], *(f"{r[k]:.3f}" for k in ("train_entropy", "heldout_entropy", "heldout_cross_entropy",
                                                               "target_entropy", "target_cross_entropy"))]
            for r in select(records, bench="unigram")]
    yield "Unigram plateau, nats", table(
        ["targets", "number", "training text", "held-out text", "held-out by training counts", "held-out targets",
         "held-out targets by training counts"], rows)


def final_training_loss(record):
    return mean(y for _, y in record["curve"][-5:])


def ablation_losses(records, variant, question, direction="both", part="all"):
    found = select(records, bench="ablation", variant=variant, question=question, direction=direction, part=part)
    return {r["seed"]: r["nats"] for r in found}


def variants_of(records):
    return list(dict.fromkeys(r["variant"] for r in select(records, bench="ablation")))


def ablation_tables(records, out):
    curves = {v: [r for r in select(records, bench="ablation", variant=v) if "curve" in r] for v in variants_of(records)}
    questions = ["spans K=6", "single K=6", "spans K=7"]
    rows = []
    for variant, found in curves.items():
        row = [variant, spread([final_training_loss(r) for r in found])]
        for question in questions:
            values = ablation_losses(records, variant, question)
            row.append(spread(list(values.values())) if values else "-")
        for direction in ("forward", "backward"):
            row.append(spread(list(ablation_losses(records, variant, "spans K=6", direction).values())))
        rows.append(row)
    yield "Ablations: held-out nats a target by what is asked (training: mean of the last 100 steps, its own targets)", table(
        ["trained as", "training loss", *questions, "spans K=6, forward lanes", "spans K=6, backward lanes"], rows)

    rows = []
    for variant in variants_of(records):
        for question, direction, part in [("spans K=6", "both", "all"), ("single K=6", "both", "all"),
                                          ("spans K=7", "both", "all"), ("spans K=6", "forward", "all"),
                                          ("spans K=6", "backward", "all"), ("spans K=6", "both", "reuse"),
                                          ("spans K=6", "both", "A"), ("spans K=6", "both", "B")]:
            base = ablation_losses(records, "k6", question, direction, part)
            other = ablation_losses(records, variant, question, direction, part)
            seeds = sorted(set(base) & set(other))
            if variant == "k6" or not seeds:
                continue
            differences = [other[s] - base[s] for s in seeds]
            rows.append([variant, question, direction, part, *cells(differences), verdict(differences)])
    yield "Ablations: difference from k6 of the same seed, nats (positive: worse than k6)", table(
        ["trained as", "asked", "lanes", "part", "mean ± sd", "each seed", "t test, 95 %"], rows)

    extra = []
    for variant, question in (("k6", "spans K=6, memory off"), ("dae", "spans K=6, 80/10/10")):
        values = ablation_losses(records, variant, question)
        if values:
            extra.append([variant, question, *cells(values.values())])
    yield "Other questions", table(["trained as", "asked", "mean ± sd", "each seed"], extra)

    unigram = select(records, bench="unigram", spans="subword")
    if curves:
        series = [(v, mean_curve([r["curve"] for r in found])) for v, found in curves.items()]
        # The first points would hide the rest.
        series = [(v, line[2:] or line) for v, line in series]
        charts.line_chart(out / "ablation-training.svg", "Training loss on real text, mean of seeds (each on its own targets)",
                          "step", "nats a target", series, [("unigram plateau", r["target_cross_entropy"]) for r in unigram])


def plateau_tables(records, out):
    rows = []
    for found in select(records, bench="unigram", spans="subword"):
        held_out = ablation_losses(records, "k6", "spans K=6")
        training = {r["seed"]: final_training_loss(r) for r in select(records, bench="ablation", variant="k6") if "curve" in r}
        if held_out:
            rows.append(["permutation LM", f"{found['target_entropy']:.3f}", spread(list(training.values())),
                         *cells(held_out.values())])
        causal = [r for r in select(records, bench="causal", eval_mem_len=64)]
        training = [final_training_loss(r) for r in select(records, bench="causal") if "curve" in r]
        if causal:
            values = [r["report"]["nats_per_token"] for r in causal]
            rows.append(["causal LM", f"{found['heldout_entropy']:.3f}", spread(training), *cells(values)])
    yield "Beneath the unigram plateau, nats a target", table(
        ["objective", "held-out unigram entropy", "training, last 100 steps", "held-out", "each seed"], rows)


def causal_tables(records, out):
    rows = []
    for memory in sorted({r["eval_mem_len"] for r in select(records, bench="causal") if "eval_mem_len" in r}):
        reports = [r["report"] for r in select(records, bench="causal", eval_mem_len=memory)]
        rows.append([memory, f"{mean(r['context_average'] for r in reports):.1f}", min(r["context_min"] for r in reports),
                     spread([r["nats_per_token"] for r in reports]), spread([r["perplexity"] for r in reports], 2)])
    yield "Causal LM trained with segments and memory of 64: memory at evaluation", table(
        ["memory", "context, average", "context, least", "nats a token", "perplexity (pieces)"], rows)


def lag_tables(records, out):
    rows, series = [], []
    finals = [r for r in select(records, bench="lag") if r.get("final")]
    for lag in sorted({r["lag"] for r in finals}, reverse=True):
        for memory in sorted({r["mem_len"] for r in finals}):
            found = select(finals, lag=lag, mem_len=memory)
            if not found:
                continue
            blind = min(lag - 1, found[0]["seq_len"])
            inside = lambda r, low, high: mean(r["loss_by_position"][low:high])
            early = [inside(r, 0, blind) for r in found]
            late = [inside(r, blind, None) for r in found] if blind < found[0]["seq_len"] else None
            rows.append([lag, memory, *cells(r["loss"] for r in found),
                         f"0-{blind - 1}: {spread(early)}", f"{blind}-{found[0]['seq_len'] - 1}: {spread(late)}" if late else "-"])
            if lag > found[0]["seq_len"]:
                lines = [[(r["step"], r["loss"]) for r in select(records, bench="lag", lag=lag, mem_len=memory, seed=f["seed"])]
                         for f in found]
                series += [(f"memory {memory}", line) for line in lines]
    if not finals:
        return
    yield (f"Copy at a distance, segments of {finals[0]['seq_len']}: ln V = {finals[0]['blind_entropy']:.3f}, entropy rate "
           f"{finals[0]['informed_entropy']:.3f} nats"), table(
        ["distance", "memory", "loss", "each seed", "positions whose source is outside the segment", "inside"], rows)
    charts.line_chart(out / "lag.svg", "Copy from beyond the segment, fresh text (a line a seed)", "step", "nats a token", series,
                      [("ln V", finals[0]["blind_entropy"]), ("entropy rate", finals[0]["informed_entropy"])])


def longer_tables(records, out):
    found = select(records, bench="lag_longer")
    rows = []
    for memory in sorted({r["eval_mem_len"] for r in found}):
        losses = [[r["loss"] for r in select(found, eval_mem_len=memory, positions=p)] for p in ("relative", "learned")]
        if all(losses):
            rows.append([memory, *(cell for values in losses for cell in cells(values))])
    if rows:
        yield f"The same copy, trained with memory {found[0]['mem_len']}, by memory at evaluation", table(
            ["memory", "relative positions", "each seed", "learned ones", "each seed"], rows)


PAIR_NAMES = {"permutation_lm": "permutation LM", "dae": "dae, all targets <mask>", "dae 80/10/10": "dae, 80/10/10", "gpt": "GPT"}


def pair_variant(record):
    corrupted = record["objective"] == "dae" and record["mask_token_prob"] < 1
    return PAIR_NAMES["dae 80/10/10" if corrupted else record["objective"]]


def pair_tables(records, out):
    lines = select(records, bench="pair")
    finals = {variant: [r for r in lines if r.get("final") and pair_variant(r) == variant] for variant in PAIR_NAMES.values()}
    finals = {variant: found for variant, found in finals.items() if found}
    if not finals:
        return
    any_final = next(iter(finals.values()))[0]
    rows, series = [], []
    for variant, found in finals.items():
        rows.append([variant, *cells(r["joint_nll"] for r in found), f"{found[0]['bound']:.3f}"])
        for final in found:
            line = [(r["step"], r["joint_nll"]) for r in select(lines, seed=final["seed"]) if pair_variant(r) == variant]
            series.append((variant, line[1:]))
        if "without_order_joint_nll" in found[0]:
            rows.append(["the same weights, order not used", *cells(r["without_order_joint_nll"] for r in found),
                         f"{found[0]['sum_of_marginals']:.3f}"])
    yield f"New York: nats a name; mutual information {any_final['mutual_information']:.3f}", table(
        ["prediction", "held-out joint NLL", "each seed", "closed-form bound"], rows)
    yield "Thom Yorke: nats a member, by whether its prediction sees the other one", member_table(finals, any_final)
    charts.line_chart(out / "new-york.svg", "Both members of a name: joint NLL (a line a seed)", "step", "nats a name", series,
                      [("joint entropy", any_final["joint_entropy"]), ("sum of marginals", any_final["sum_of_marginals"])])


def member_table(finals, any_final):
    alone = any_final["sum_of_marginals"] / 2
    given = any_final["joint_entropy"] - alone
    rows = []
    for variant, found in finals.items():
        # What dae shows of corrupted targets gives a part of the answer away.
        by_itself = found[0]["bound"] / 2 if found[0]["objective"] == "dae" else alone
        for name, bound in (("first_alone", by_itself), ("second_given_first", given), ("second_alone", by_itself),
                            ("first_given_second", given)):
            losses = [r[name + "_nll"] for r in found if name + "_nll" in r]
            if losses:
                rows.append([variant, name.replace("_", " "), *cells(losses), f"{bound:.3f}"])
            else:
                rows.append([variant, name.replace("_", " "), "never predicted", "", ""])
    return table(["trained as", "member", "held-out NLL", "each seed", "closed form"], rows)


def neighbour_tables(records, out):
    rows = []
    for objective in ("gpt", "bert"):
        found = [r for r in select(records, bench="neighbour", objective=objective) if r.get("final")]
        for parity in ("odd", "even"):
            if found:
                rows.append([objective, parity, *cells(r[f"{parity}_nll"] for r in found),
                             spread([r[f"{parity}_bound"] for r in found])])
    yield "Odd tokens are a function of both neighbours: nats a target, and the least that the objective can reach", table(
        ["objective", "tokens", "loss", "each seed", "least possible"], rows)


def write(records, out):
    sections = []
    for part in (unigram_tables, plateau_tables, ablation_tables, causal_tables, lag_tables, longer_tables, pair_tables,
                 neighbour_tables):
        sections += [f"### {title}\n\n{body}\n" for title, body in part(records, out) if body.count("\n") > 1]
    (out / "tables.md").write_text("\n".join(sections), encoding="utf-8")
