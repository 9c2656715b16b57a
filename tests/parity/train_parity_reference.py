"""XLNet's training loop in plain torch around transformers' network: the judge of ours.

Nothing here comes from our network, loss or optimizer. The optimizer is the published one (Yang et al. 2019, model_utils.py of
the released code), or torch's own AdamW, where the run corrects the bias of the moments.
"""
import math
import re

import hf_model
import torch


# Of a run, every key.
OPTIMIZER = {
    "learning_rate": 1e-3, "min_learning_rate_ratio": 0.1, "warmup_steps": 10, "adam_beta1": 0.9, "adam_beta2": 0.999,
    "adam_epsilon": 1e-6, "weight_decay": 0.01, "bias_correction": False, "adam_form": "tensorflow", "max_grad_norm": 1.0,
}


def settings(optimizer):
    """A run's, of its optimizer."""
    return {f"optimizer.{key}": str(value).lower() for key, value in optimizer.items()}


def learning_rate(optimizer, steps, step):
    """Of 0-based `step`: linear warm-up from 0, then linear decay to a fraction of the peak."""
    peak, warmup = optimizer["learning_rate"], optimizer["warmup_steps"]
    if step < warmup:
        return peak * step / warmup
    floor = optimizer["min_learning_rate_ratio"]
    return peak * (floor + (1 - floor) * (1 - (step - warmup) / (steps - warmup)))


def decays(name):
    """The published rule: all but LayerNorm and biases, but the three attention biases do."""
    if re.search(r"r_[wrs]_bias", name):
        return True
    return not re.search(r"LayerNorm|layer_?norm|\.norm\.|bias", name)


def clip(parameters, bound):
    """Makes all gradients smaller, so that their norm is at most `bound`. Returns the norm that they had."""
    norm = math.sqrt(sum(float(value.grad.double().square().sum()) for value in parameters.values()))
    for value in parameters.values():
        value.grad.mul_(bound / max(norm, bound))
    return norm


class PublishedAdamW:
    """Without bias correction; decay is decoupled, and inside the learning rate."""

    def __init__(self, parameters, optimizer):
        self.parameters, self.settings = parameters, optimizer
        self.m = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.v = {name: torch.zeros_like(value) for name, value in parameters.items()}

    @torch.no_grad()
    def step(self, rate):
        beta1, beta2 = self.settings["adam_beta1"], self.settings["adam_beta2"]
        for name, weight in self.parameters.items():
            gradient, m, v = weight.grad, self.m[name], self.v[name]
            m.copy_(beta1 * m + (1 - beta1) * gradient)
            v.copy_(beta2 * v + (1 - beta2) * gradient * gradient)
            update = m / (v.sqrt() + self.settings["adam_epsilon"])
            if decays(name):
                update = update + self.settings["weight_decay"] * weight
            weight.sub_(rate * update)


class TorchAdamW:
    """torch.optim.AdamW, as it is. It adds epsilon to sqrt(v / (1 - beta2^t)); for a run of optimizer.adam_form = "tensorflow",
    which adds it to sqrt(v), torch gets the epsilon that is the same there."""

    def __init__(self, parameters, optimizer):
        self.parameters, self.settings = parameters, optimizer
        groups = [{"params": [value for name, value in parameters.items() if decays(name) == decay],
                   "weight_decay": optimizer["weight_decay"] if decay else 0.0} for decay in (True, False)]
        self.adam = torch.optim.AdamW(groups, betas=(optimizer["adam_beta1"], optimizer["adam_beta2"]))
        self.updates = 0

    def step(self, rate):
        self.updates += 1
        is_torch = self.settings["adam_form"] == "torch"
        scale = 1 if is_torch else math.sqrt(1 - self.settings["adam_beta2"] ** self.updates)
        for group in self.adam.param_groups:
            group["lr"], group["eps"] = rate, self.settings["adam_epsilon"] / scale
        self.adam.step()

    @property
    def m(self):
        return {name: self.adam.state[value]["exp_avg"] for name, value in self.parameters.items()}

    @property
    def v(self):
        return {name: self.adam.state[value]["exp_avg_sq"] for name, value in self.parameters.items()}


@torch.no_grad()
def jiggle(parameters, generator):
    """Moves each weight to one of its two neighbours in fp32."""
    for weight in parameters.values():
        towards = torch.where(torch.rand(weight.shape, generator=generator) < 0.5, -math.inf, math.inf)
        weight.copy_(torch.nextafter(weight, towards))


def optimize(parameters, optimizer, steps, loss_of, seed=None):
    """Takes a step for each of `steps`, whose loss is loss_of(step). `optimizer` is the run's section of that name, with every key. With
    `seed` each weight is moved by a rounding at random after each step. Returns the optimizer and {"loss": [steps], "grad_norm": [steps],
    "lr": [steps], "clipped": number of steps in which clipping acted, "first": adam_m after one step}."""
    adam = (TorchAdamW if optimizer["bias_correction"] else PublishedAdamW)(parameters, optimizer)
    generator = torch.Generator().manual_seed(seed or 0)
    result = {"loss": [], "grad_norm": [], "lr": [], "clipped": 0}
    for number, step in enumerate(steps):
        for value in parameters.values():
            value.grad = torch.zeros_like(value)  # of segments of one kind alone it stays that
        loss = loss_of(step)
        loss.backward()
        norm, rate = clip(parameters, optimizer["max_grad_norm"]), learning_rate(optimizer, len(steps), number)
        result["clipped"] += norm > optimizer["max_grad_norm"]
        adam.step(rate)
        if seed is not None:
            jiggle(parameters, generator)
        for key, value in (("loss", float(loss.detach())), ("grad_norm", norm), ("lr", rate)):
            result[key].append(value)
        if number == 0:
            result["first"] = {name: value.double().clone() for name, value in adam.m.items()}
    return adam, result


def train(export, steps, optimizer, dtype=torch.float64, seed=None):
    """Trains the exported network on `steps` (prepared), each lane reading the memory that its step before left. Returns what optimize()
    says, and "state": {name: tensor in double}, whose names are master/PARAMETER, adam_m/PARAMETER, adam_v/PARAMETER, and memory
    [lanes, layers, rows, d].
    """
    torch.set_num_threads(1)
    model, faults = hf_model.load_model(export)
    assert not faults, faults
    model.to(dtype)
    if dtype == torch.float64:
        hf_model.exact_position_tables(model, dtype)
    parameters, memory = dict(model.named_parameters()), []

    def loss_of(step):
        inputs, labels, weights = step
        inputs = {**inputs, "target_mapping": inputs["target_mapping"].to(dtype)}
        output = model(**inputs, mems=memory[:] or None, use_mems=True)
        memory[:] = output.mems
        return hf_model.weighted_losses(output.logits, labels, weights.to(dtype)).sum() / weights.sum()

    adam, result = optimize(parameters, optimizer, steps, loss_of, seed)
    result["state"] = {f"{kind}/{name}": value.detach().double().clone()
                       for kind, tensors in (("master", parameters), ("adam_m", adam.m), ("adam_v", adam.v))
                       for name, value in tensors.items()}
    result["state"]["memory"] = torch.stack(memory).permute(2, 0, 1, 3).double()
    return result
