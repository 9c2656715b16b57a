#!/usr/bin/env python3
"""launcher/follow_metrics.py with the packages themselves, offline: every number of a run's metrics comes back from what they wrote, once,
with its step, also where the follower was started again and where a crash had the run do steps again.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import mlflow
    import wandb
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/launcher"), str(ROOT / "launcher")]
from follow_metrics import numbers
from make_run import Run


def follow(run, to, environment):
    done = subprocess.run([sys.executable, ROOT / "launcher/follow_metrics.py", run, to, "--once"], capture_output=True, text=True,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[-2]


def expected(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {(key, line["step"]): value for line in lines for key, value in numbers(line).items()}


def wandb_records(path):
    """Of W&B's transaction log: behind a header of 7 bytes blocks of 32 KiB as LevelDB's logs have, records in one piece or several."""
    blob, at, record = path.read_bytes(), 7, b""
    assert blob[:4] == b":W&B", blob[:7]
    while at + 7 <= len(blob):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", blob[at:at + 7])
        record += blob[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last piece
            yield record
            record = b""


def wandb_history(folder):
    """(name, step) and value of all rows of all offline runs, and the runs' names and states."""
    from wandb.proto import wandb_internal_pb2
    rows, runs, states = [], set(), []
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in wandb_records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                runs.add(record.run.run_id)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                rows.append({key: value for key, value in row.items() if not key.startswith("_")})
            if record.WhichOneof("record_type") == "summary":
                states += [json.loads(item.value_json) for item in record.summary.update if "state" in (item.key, *item.nested_key)]
    return {(key, row["step"]): value for row in rows for key, value in row.items() if key != "step"}, len(rows), runs, states


def same(found, wanted):
    return found.keys() == wanted.keys() and all(math.isclose(found[key], wanted[key], rel_tol=1e-12) for key in wanted)


def main():
    print("wandb", wandb.__version__, "mlflow", mlflow.__version__)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        run = Run(folder / "run", 40)
        run.record("created", run_id="3f2a90c1d2e4b567", config_digest="c0ffee")
        run.start(0, 2)
        run.train(1, 20, evaluate=10)
        run.train(21, 21, loss=None, skipped=True)
        run.write()
        offline = {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true", "HOME": str(folder)}
        files = {"MLFLOW_TRACKING_URI": f"file:{folder}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true", "HOME": str(folder)}
        for to, environment in (("--wandb", offline), ("--mlflow", files)):
            assert "running; sent up to step 21" in follow(run.directory, to, environment)
        # A crash loses steps 16 to 21; they come again, with the same numbers but for the time.
        lines = run.lines["metrics.jsonl"]
        run.lines["metrics.redone.jsonl"], again = lines[15:], [json.loads(line) for line in lines[15:]]
        run.end(137)
        run.start(15, 2)
        run.lines["metrics.jsonl"] = lines[:15] + [json.dumps({**line, "attempt": 2, "time": run.time()}) + "\n" for line in again]
        run.train(22, 40, evaluate=10)
        run.end(0, 40, "finished")
        (run.directory / "metrics.jsonl").unlink()
        run.write()
        for to, environment in (("--wandb", offline), ("--mlflow", files)):
            assert "finished; sent up to step 40" in follow(run.directory, to, environment)

        wanted = expected(run.directory)
        history, rows, runs, states = wandb_history(folder)
        assert same(history, wanted), (set(history) ^ set(wanted))
        assert rows == 40 and runs == {"3f2a90c1d2e4b567"} and states[-1] == "finished", (rows, runs, states)

        os.environ.update(files)
        mlflow.set_tracking_uri(files["MLFLOW_TRACKING_URI"])
        client = mlflow.MlflowClient()
        [found] = client.search_runs([client.get_experiment_by_name("anyorder").experiment_id])
        points = [(key, point.step, point.value) for key in found.data.metrics for point in client.get_metric_history(found.info.run_id, key)]
        assert len(points) == len(wanted) and same({(key, step): value for key, step, value in points}, wanted)
        assert found.info.status == "FINISHED" and found.data.params["train.steps"] == "40", found
        assert found.data.tags["anyorder.run_id"] == "3f2a90c1d2e4b567" and found.info.run_name == "run"
    print("every number came back")
    return 0


if __name__ == "__main__":
    sys.exit(main())
