"""Settings of memory and traffic that may differ from start to start of a run and change no bit.
drawn_settings.py RANKS MICROBATCHES LAYERS prints a draw, `key=value` a line."""
import random
import sys

VALUES = {
    "train.recompute": ["none", "elementwise", "layer"],
    "dist.shard_weights": ["none", "node", "all"],
    "dist.bucket_mib": [1, 32],
    "checkpoint.staged_copies": [1, 2],
}


def draw(source, ranks, microbatches, layers):
    """A value for each of them with which so many ranks can start."""
    drawn = {key: source.choice(values) for key, values in VALUES.items()}
    drawn["train.recompute_layers"] = 0 if drawn["train.recompute"] == "none" else source.randint(0, layers)
    powers = [1 << i for i in range((microbatches // ranks).bit_length())]
    drawn["dist.leaves_per_exchange"] = source.choice([0] + powers)
    return ["%s=%s" % setting for setting in drawn.items()]


if __name__ == "__main__":
    print("\n".join(draw(random, *map(int, sys.argv[1:]))))
