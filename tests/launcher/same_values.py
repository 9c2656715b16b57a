#!/usr/bin/env python3
"""Whether two files that a command wrote hold the same: JSON lines and runs as they are, tensors without the file's metadata,
which names the network.

Usage: same_values.py FILE FILE
"""
import json
import struct
import sys


def values(path):
    data = open(path, "rb").read()
    if not 0 < struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0] < len(data):
        return data
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return header, data[8 + size:]


sys.exit(values(sys.argv[1]) != values(sys.argv[2]))
