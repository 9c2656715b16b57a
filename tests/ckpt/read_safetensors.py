"""Reads safetensors files, written from the published format alone. read_safetensors.py FILE prints
every tensor."""
import json
import struct
import sys

CODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "U16": "H", "U8": "B", "BF16": "H"}


def read(path):
    """The header, and the bytes that its data_offsets count."""
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(header_bytes)), file.read()


if __name__ == "__main__":
    header, data = read(sys.argv[1])
    header.pop("__metadata__", None)
    for name, info in sorted(header.items()):
        begin, end = info["data_offsets"]
        code = "<" + CODES[info["dtype"]]
        values = [value for (value,) in struct.iter_unpack(code, data[begin:end])]
        print(name, info["dtype"], info["shape"], values)
