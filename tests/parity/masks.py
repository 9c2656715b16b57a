"""What attention may see, twice: as the published code builds it from the sampler's facts, and from the O(T) integers
that our network is given. Neither shares code with the product or with the other; they must be equal."""
import torch

SEP, CLS = 4, 3
DOC_PAD, DOC_ANY = -1, -2  # kernels/visibility.h


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


def checked_inputs(t, facts, reuse_len, faults):
    """The same; a fault where ours chose other targets."""
    inputs, labels, weights = model_inputs(facts, reuse_len)
    if not torch.equal(weights, facts["weights"]) or not torch.equal(labels, facts["labels"].long()):
        faults.append(f"step {t}: labels or weights differ")
    return inputs, labels, weights


def keys_of_rows(facts, first, count):
    """Our visibility arrays, expanded, [lanes, count, K]: `count` rows a lane from row `first` on, K keys memory first."""
    lanes = len(facts["key_key"])
    limit, group, document = (
        facts["row_" + name][first:first + lanes * count].reshape(lanes, count, 1) for name in ("lim", "grp", "doc"))
    key, key_group, key_document = (facts[name][:, None, :] for name in ("key_key", "key_grp", "key_doc"))
    same_document = (key_document != DOC_PAD) & ((key_document == DOC_ANY) | (key_document == document))
    in_order = (key <= limit) | ((group >= 0) & (group == key_group))
    return same_document & in_order


def expect_text_order(facts, causal=True):
    """Raises ValueError where not every slot sees all slots, or with `causal` itself and those before it."""
    seen = keys_of_rows(facts, 0, facts["input"].shape[1])
    everywhere = torch.ones_like(seen)
    if not torch.equal(seen, everywhere.tril() if causal else everywhere):
        raise ValueError("the run's text is seen in another way")


def dense_inputs(facts, held):
    """perm_mask, target_mapping and faults, from our visibility arrays. `held`: memory rows that must be visible."""
    lanes, slots = facts["tokens"].shape
    queries = facts["labels"].shape[1]
    content, query = keys_of_rows(facts, 0, slots), keys_of_rows(facts, lanes * slots, queries)
    memory_rows = content.shape[2] - slots
    perm_mask = 1 - content[:, :, memory_rows:].float()
    mapping = torch.zeros(lanes, queries, slots)
    faults = []
    expected_memory = torch.arange(memory_rows) >= memory_rows - held
    if not (content[:, :, :memory_rows] == expected_memory).all():
        faults.append(f"content rows do not see exactly the newest {held} rows of memory")
    for b in range(lanes):
        for entry in range(queries):
            row = int(facts["readout_rows"][b, entry])
            slot = row - lanes * slots - b * queries
            if not 0 <= slot < queries:
                faults.append(f"lane {b} reads out row {row}, which is no query row of its own")
                continue
            if facts["weights"][b, entry] == 0:
                if query[b, slot].any():
                    faults.append(f"lane {b}: the unused query slot {slot} sees something")
                continue
            position = int(facts["row_pos"][row])
            mapping[b, entry, position] = 1
            if not torch.equal(query[b, slot, :memory_rows], expected_memory):
                faults.append(f"lane {b}: query slot {slot} does not see the memory that content rows see")
            perm_mask[b, position] = 1 - query[b, slot, memory_rows:].float()
            opened = query[b, slot].clone()
            opened[memory_rows + position] = True
            if query[b, slot, memory_rows + position] or not torch.equal(opened, content[b, position]):
                faults.append(f"lane {b}: the streams of position {position} differ by more than itself")
    return perm_mask, mapping, faults


def drop_blind_targets(perm_mask, mapping):
    """Number of targets that may see nothing. Theirs would attend to everything alike, having subtracted the same 1e30 from
    each score; ours attends to nothing. Without its target mapping such a slot's attention is zero there, too."""
    blind = (mapping @ perm_mask).sum(-1) == perm_mask.shape[-1]
    mapping[blind] = 0
    return int(blind.sum())


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
