"""Prints every tensor of a safetensors file, written from the published format alone."""
import json
import struct
import sys

CODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "U16": "H", "U8": "B", "BF16": "H"}

with open(sys.argv[1], "rb") as file:
    data = file.read()
(header_bytes,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8 : 8 + header_bytes])
header.pop("__metadata__", None)
for name, info in sorted(header.items()):
    begin, end = (8 + header_bytes + offset for offset in info["data_offsets"])
    code = CODES[info["dtype"]]
    values = [value for (value,) in struct.iter_unpack("<" + code, data[begin:end])]
    print(name, info["dtype"], info["shape"], values)
