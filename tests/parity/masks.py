"""What attention may see, as the published code builds it: from the sampler's facts, not from the network's batch."""
import torch

SEP, CLS = 4, 3


def permutation_mask(tokens, masked, order, reuse_len):
    """1 where row i may not see column j: the 2 x 2 blocks of the published data_utils.py."""
    size = len(tokens)
    mask = torch.zeros(size, size)
    functional = (tokens == SEP) | (tokens == CLS)
    for begin in (0, reuse_len):
        half = slice(begin, begin + reuse_len)
        context = (masked[half] == 0) & ~functional[half]
        target = (masked[half] == 1) & ~functional[half]
        rank = torch.where(context, torch.tensor(-1, dtype=order.dtype), order[half])
        own = torch.where(target, rank, rank + 1)
        mask[half, half] = ((own[:, None] <= rank[None, :]) & ~context[None, :]).float()
    mask[:reuse_len, reuse_len:] = 1
    return mask


def target_positions(tokens, masked):
    return [i for i in range(len(tokens)) if masked[i] == 1 and tokens[i] not in (SEP, CLS)]


def model_inputs(facts, reuse_len):
    """Keyword arguments of XLNetLMHeadModel for all lanes of a dumped step; labels and weights [lanes, targets]."""
    tokens, masked = facts["tokens"].long(), facts["masked"]
    lanes, slots = tokens.shape[0], facts["labels"].shape[1]
    masks = torch.stack([permutation_mask(tokens[b], masked[b], facts["order"][b], reuse_len) for b in range(lanes)])
    mapping = torch.zeros(lanes, slots, tokens.shape[1])
    labels = torch.zeros(lanes, slots, dtype=torch.long)
    weights = torch.zeros(lanes, slots)
    for b in range(lanes):
        for slot, position in enumerate(target_positions(tokens[b], masked[b])):
            mapping[b, slot, position] = 1
            labels[b, slot] = tokens[b, position]
            weights[b, slot] = 1
    inputs = dict(
        input_ids=tokens, token_type_ids=facts["segment"].long(), perm_mask=masks, target_mapping=mapping)
    return inputs, labels, weights


def layout_faults(facts, reuse_len):
    """Faults where a sequence is not [reuse | A SEP B SEP CLS] with the published segment ids."""
    for tokens, segment in zip(facts["tokens"], facts["segment"]):
        separators = [i for i in range(reuse_len, len(tokens)) if tokens[i] == SEP]
        if len(separators) != 2 or separators[1] != len(tokens) - 2 or tokens[-1] != CLS:
            yield f"SEP at {separators}, last token {int(tokens[-1])}"
            continue
        expected = [0] * (separators[0] + 1) + [1] * (separators[1] - separators[0]) + [2]
        if segment.tolist() != expected:
            yield "segment ids are not 0 .. 0 1 .. 1 2"


def continuity_faults(facts, following, reuse_len):
    """Faults where A of one step does not begin as the reuse part of the next one does."""
    for tokens, next_tokens in zip(facts["tokens"], following["tokens"]):
        a = tokens[reuse_len:]
        length = a.tolist().index(SEP)
        if not torch.equal(a[:length], next_tokens[:length]):
            yield "the next step does not go on where this one's reuse part ends"
