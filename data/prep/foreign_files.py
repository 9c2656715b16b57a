"""Reads files of a directory that others made, as core/base/whole_file.h and json_members.h do."""
import json
import os

MAX_BYTES = 64 << 20


def inside(directory, name):
    """The path of a plain file there. ValueError for another kind, and for a link out of it, unless that is one of Hugging Face's
    cache: models--x/snapshots/HASH/name to models--x/blobs/HASH."""
    path, below = os.path.join(directory, name), os.path.join(os.path.realpath(directory), "")
    real = os.path.realpath(path)
    model, kind = os.path.split(os.path.dirname(real))
    is_blob = kind == "blobs" and os.path.basename(model).startswith("models--") and below.startswith(os.path.join(model, "snapshots", ""))
    if not real.startswith(below) and not is_blob:
        raise ValueError(f"'{path}' leads to '{real}', which is not in its directory; put the file itself there if it is meant (cp -L)")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"'{path}' is not a plain file; remove it")
    return path


def read_text(directory, name):
    """OSError; ValueError, also for more than MAX_BYTES."""
    path = inside(directory, name)
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"'{path}' has more than {MAX_BYTES} bytes, the most that a file of this kind may have")
    return data.decode()


def read_object(directory, name):
    """A JSON object. OSError; ValueError."""
    try:
        found = json.loads(read_text(directory, name))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"'{os.path.join(directory, name)}' is damaged ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"'{os.path.join(directory, name)}' is damaged (no JSON object)")
    return found
