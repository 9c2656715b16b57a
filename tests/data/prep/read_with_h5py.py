#!/usr/bin/env python3
"""Reads a dataset with nothing but h5py, numpy and FORMAT.md, and checks it against itself.

Usage: read_with_h5py.py DATASET_DIRECTORY   (exit 0 good, 1 a fault, 77 h5py is not installed)
Prints the tokens' sum, so that the caller can compare it with its own reading.
"""
import json
import sys
from pathlib import Path

try:
    import h5py
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).parents[2] / "launcher"))
from make_run import crc32c  # noqa: E402

ARRAYS = ["tokens", "sentence_flags", "document_starts", "word_starts"]


def check_sums(file, name, chunk_bytes, offsets=None):
    data = file[name][...].tobytes()
    expected = [crc32c(data[at:at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)]
    assert list(file["checksums"][name][:]) == expected, f"checksums of {name}"
    assert file[name].chunks is None and file[name].compression is None, f"layout of {name}"
    assert file[name].id.get_offset() % 64 == 0, f"alignment of {name}"
    for array in (name, "checksums/" + name) if offsets else ():
        assert file[array].id.get_offset() == offsets[array], f"place of {array}"


def read_shard_index(directory, index):
    header = np.fromfile(directory / "shards.idx", "<u8", 4)
    assert header[0].tobytes() == b"ANYOSHRD" and list(header[1:3]) == [3, 104]
    record = np.dtype([("bytes", "<u8"), ("digest", "V16"), ("metadata_digest", "V16"), ("offsets", "<u8", 8)])
    records = np.fromfile(directory / "shards.idx", record, offset=32)
    assert len(records) == header[3] == -(-index["num_tokens"] // index["shard_tokens"])
    return records


def main():
    directory = Path(sys.argv[1])
    index = json.loads((directory / "dataset.json").read_text())
    assert index["format"] == "anyorder-dataset" and index["format_version"] == 4
    tokens, flags, starts, words = [], [], [], []
    for number, record in enumerate(read_shard_index(directory, index)):
        path = directory / f"shard-{number:05d}.h5"
        assert path.stat().st_size == record["bytes"]
        offsets = dict(zip(ARRAYS + ["checksums/" + name for name in ARRAYS], record["offsets"]))
        with h5py.File(path, "r") as file:
            first = number * index["shard_tokens"]
            n = min(index["shard_tokens"], index["num_tokens"] - first)
            assert file.attrs["shard_index"] == number and file.attrs["num_tokens"] == n
            assert file.attrs["first_token"] == first == sum(len(t) for t in tokens)
            for key in ("tokenizer_digest", "corpus_digest"):
                assert file.attrs[key].decode() == index[key], key
            assert file["tokens"].dtype == np.dtype("<u2") and file["tokens"].shape == (n,)
            for name in ARRAYS:
                check_sums(file, name, index["chunk_bytes"], offsets)
            tokens.append(file["tokens"][:])
            for name, out in (("sentence_flags", flags), ("document_starts", starts), ("word_starts", words)):
                bits = np.unpackbits(file[name][:], bitorder="little")
                assert not bits[n:].any(), "bits past the end"
                out.append(bits[:n])
    tokens, flags, starts, words = (np.concatenate(x) for x in (tokens, flags, starts, words))
    eod = index["vocab_ids"]["eod"]
    assert len(tokens) == index["num_tokens"] and tokens.max() < index["vocab_size"]
    assert starts[0] == 1 and tokens[-1] == eod
    # A document starts right after each <eod>, with the other flag.
    ends = np.flatnonzero(tokens == eod)
    assert len(ends) == starts.sum() == index["num_documents"]
    assert np.array_equal(np.flatnonzero(starts)[1:], ends[:-1] + 1)
    assert (flags[ends[:-1]] != flags[ends[:-1] + 1]).all()
    assert flags[0] == 1 and (np.diff(flags.astype(int)) != 0).sum() + 1 == index["num_sentences"]
    print(int(tokens.astype(np.int64).sum()))


if __name__ == "__main__":
    main()
