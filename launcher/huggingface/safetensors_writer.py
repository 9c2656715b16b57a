"""Writes model.safetensors for the converters of weights, which need nothing but Python to import this."""
import json
import math
import os
import struct
import sys

ALIGNMENT = 8


def fail(status, message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(status)


def write(tensors, path):
    """Writes {name: (type, shape, bytes of an element, function that returns the bytes)}, a tensor at a time.

    `type` is safetensors' name, such as "F32"; the bytes are little-endian, row by row. The file appears complete or not at all,
    and never in place of another. OSError if it cannot be written.
    """
    # Wider elements first, so that each tensor is aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name][2], name))
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        kind, shape, width, _ = tensors[name]
        end = position + width * math.prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    partial = f"{path}.partial-{os.getpid()}"
    try:
        with open(partial, "xb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in order:
                file.write(tensors[name][3]())
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename, never over another file
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
