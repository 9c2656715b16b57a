"""Reads a run directory as an outsider would: check_run.py RUN_DIR STEPS. TensorBoard's records with struct alone."""
import glob
import json
import struct
import sys

from make_run import crc32c
from protobuf import fields

run, steps = sys.argv[1], int(sys.argv[2])


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(blob):
    while blob:
        head, (size, check) = blob[:8], struct.unpack("<QI", blob[:12])
        data, (data_check,) = blob[12:12 + size], struct.unpack("<I", blob[12 + size:16 + size])
        assert check == masked(head) and data_check == masked(data)
        yield data
        blob = blob[16 + size:]


metrics = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
assert [m["step"] for m in metrics] == list(range(1, steps + 1))
for key in ("loss", "lr", "grad_norm", "tokens_per_second", "data_wait_ms", "ckpt_stall_ms"):
    assert all(isinstance(m[key], (int, float)) for m in metrics), key

(events,) = glob.glob(f"{run}/tensorboard/events.out.tfevents.*")
parsed = [dict(fields(r)) for r in records(open(events, "rb").read())]
assert parsed[0][3] == b"brain.Event:2"
losses = {}
for event in parsed[2:]:
    for number, value in fields(event[5]):
        entry = dict(fields(value))
        if entry[1] == b"train/loss":
            losses[event[2]] = struct.unpack("<f", entry[2])[0]
assert losses == {m["step"]: struct.unpack("<f", struct.pack("<f", m["loss"]))[0] for m in metrics}
