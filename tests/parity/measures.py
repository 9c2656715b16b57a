"""How far our numbers are from theirs, quantity by quantity."""
import math


class Measures:
    """The largest difference, the largest difference over the largest value of its tensor, and the relative L2 norm of all
    differences, of every quantity that was added."""

    def __init__(self):
        self.rows = {}

    def add(self, quantity, ours, theirs):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        if ours.shape != theirs.shape:
            raise ValueError(f"{quantity}: ours is {tuple(ours.shape)}, theirs {tuple(theirs.shape)}")
        largest, relative, error, norm = self.rows.get(quantity, (0.0, 0.0, 0.0, 0.0))
        difference = float((ours - theirs).abs().max())
        # Not a number must not compare as small.
        difference = math.inf if math.isnan(difference) else difference
        scale = float(theirs.abs().max())
        self.rows[quantity] = (
            max(largest, difference), max(relative, difference / scale if scale > 0 else difference and math.inf),
            error + float((ours - theirs).square().sum()), norm + float(theirs.square().sum()))

    def table(self):
        """(quantity, max abs, max relative, relative L2) in the order of adding."""
        return [(quantity, largest, relative, math.sqrt(error / norm) if norm > 0 else math.sqrt(error))
                for quantity, (largest, relative, error, norm) in self.rows.items()]

    def exceeding(self, tolerance, gradient_tolerance):
        """The quantities that differ by more than rounding."""
        return [f"{quantity}: {max(relative, norm):.1e} is over {limit:.1e}"
                for quantity, _, relative, norm in self.table()
                for limit in (gradient_tolerance if quantity == "gradients" else tolerance,)
                if not max(relative, norm) <= limit]


def print_header():
    print("| network | quantity | max abs | max relative | relative L2 |\n|---|---|---|---|---|")


def print_table(network, measures):
    for quantity, largest, relative, norm in measures.table():
        print(f"| {network} | {quantity} | {largest:.1e} | {relative:.1e} | {norm:.1e} |", flush=True)
