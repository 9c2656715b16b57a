"""Every number of a dumped run beside what transformers makes of the exported weights."""
import hf_model
import masks
import torch


def check_facts(t, steps, config, faults):
    """What is right or wrong, not near or far: layout, continuity, labels and masks. Returns the inputs for transformers."""
    facts, reuse_len = steps[t], config.reuse_len
    faults += masks.layout_faults(facts, reuse_len)
    if t + 1 < len(steps):
        faults += masks.continuity_faults(facts, steps[t + 1], reuse_len)
    return masks.checked_inputs(t, facts, reuse_len, faults)


def check_masks(t, facts, inputs, held, faults):
    perm_mask, mapping, found = masks.dense_inputs(facts, held)
    faults += [f"step {t}: {fault}" for fault in found]
    if not torch.equal(perm_mask, inputs["perm_mask"]):
        faults.append(f"step {t}: perm_mask of our arrays is not that of _local_perm")
    if not torch.equal(mapping, inputs["target_mapping"]):
        faults.append(f"step {t}: our readout is not the published target mapping")
    inputs.update(perm_mask=perm_mask, target_mapping=mapping)
    return masks.drop_blind_targets(perm_mask, mapping)


def add_hidden_states(measures, facts, states):
    """`states`: h and g of every level in turn. Our last layer makes no content rows: nothing would read them."""
    levels = len(states) // 2
    for level in range(levels):
        if level + 1 < levels:
            measures.add("content stream", facts[f"content/{level}"], states[2 * level])
        elif f"content/{level}" in facts:
            raise ValueError("the last layer's content rows were computed")
        # Transformers expands one row of the mask embedding.
        measures.add("query stream", facts[f"query/{level}"], states[2 * level + 1].expand_as(facts[f"query/{level}"]))


def split_losses(measures, facts, losses, weights):
    ours = facts["losses"] * weights
    for name, direction in (("losses, forward lanes", 0), ("losses, backward lanes", 1)):
        rows = facts["backward"] == direction
        if rows.any():
            measures.add(name, ours[rows], losses[rows])


def compare(export, dump, num_steps, zero_memory=False, exact_positions=False):
    """Measures of the run's first steps, what is simply wrong, and the number of targets that see nothing."""
    steps = hf_model.read_steps(dump, num_steps)
    both = bool(steps[0]["backward"].any())
    model, faults = hf_model.load_model(export, both)
    if exact_positions:
        hf_model.exact_position_tables(model)
    config = model.config
    measures, blind = hf_model.Measures(), 0
    lanes = len(steps[0]["tokens"])
    directions = [0] * (lanes // 2) + [1] * (lanes // 2) if both else [0] * lanes
    mems = [torch.zeros(config.mem_len, lanes, config.d_model)] * config.n_layer if zero_memory else None
    for t, facts in enumerate(steps):
        if facts["backward"].tolist() != directions:
            faults.append(f"directions are {facts['backward'].tolist()}")
        inputs, labels, weights = check_facts(t, steps, config, faults)
        blind += check_masks(t, facts, inputs, 0 if mems is None else len(mems[0]), faults)
        with_gradients = any(name.startswith("gradient/") for name in facts)
        with torch.set_grad_enabled(with_gradients):
            result = model(**inputs, mems=mems, use_mems=config.mem_len > 0, output_hidden_states=True)
            losses = hf_model.weighted_losses(result.logits, labels, weights)
        if with_gradients:
            model.zero_grad()
            losses.sum().backward()
            for _, ours, theirs in hf_model.gradient_pairs(facts, model):
                measures.add("gradients", ours, theirs)
        add_hidden_states(measures, facts, result.hidden_states)
        measures.add("logits", facts["logits"], result.logits)
        split_losses(measures, facts, losses, weights)
        if config.mem_len > 0:
            mems = [layer.detach() for layer in result.mems]
            held = min(config.mem_len, config.mem_len if zero_memory else (t + 1) * config.reuse_len)
            if len(mems[0]) != held:
                faults.append(f"step {t}: transformers keeps {len(mems[0])} rows of memory")
            measures.add("memory", facts["memory"][:, :, -len(mems[0]):], torch.stack(mems).permute(2, 0, 1, 3))
    return measures, faults, blind
