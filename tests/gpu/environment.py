#!/usr/bin/env python3
"""Prints what a GPU machine is, one `key<TAB>value` a line; changes nothing. Usage: environment.py [BUNDLE_OR_BUILD_DIR]

The driver and CUDA's libraries are asked themselves, through ctypes, so that nothing but Python is needed. `gpus` is always printed; 0
where there is no driver or it finds none (`no_gpu` then says why). `old_driver` is there if the driver cannot run what this build's
toolkit made. Each line is printed once it is known, the slow ones last: what ends this early leaves the rest to be read.
"""
import ctypes
import datetime
import glob
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# cudaDeviceAttr of the driver's header: compute capability.
MAJOR, MINOR = 75, 76
QUERY = ("driver_version", "name", "memory.total", "clocks.current.sm", "clocks.max.sm", "clocks.current.memory", "clocks.max.memory", "power.limit",
         "power.draw", "temperature.gpu", "persistence_mode", "compute_mode", "mig.mode.current", "ecc.mode.current",
         "clocks_event_reasons.active")
PROGRAM_SECONDS = 10  # nvidia-smi takes one to five where persistence mode is off
FIELD_BY_FIELD_SECONDS = 15


def library_folders():
    """Where CUDA's libraries may be, in the order in which the programs look, and last Python's packages of them."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root:
            folders += [f"{root}/lib64", f"{root}/lib"]
    folders += ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]
    return folders + package_folders()


def package_folders():
    """lib folders of the nvidia-* packages of this Python: pip's torch brings cuBLASLt and NCCL along."""
    return sorted(folder for path in sys.path for pattern in ("nvidia/*/lib", "nvidia/*/lib64") for folder in glob.glob(os.path.join(path or ".", pattern)))


def find_library(stem, folders):
    """Newest `stem`.so.N of the first folder that has one; None without."""
    for folder in folders:
        found = [path for path in glob.glob(f"{folder}/{stem}.so.*") if re.fullmatch(r"\d+", path.rsplit(".so.", 1)[1])]
        if found:
            return max(found, key=lambda path: int(path.rsplit(".", 1)[1]))
    return None


def cuda_version(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def cublaslt_version(library):
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    number = library.cublasLtGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def nccl_version(library):
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def libraries():
    for key, stem, version in (("cublaslt", "libcublasLt", cublaslt_version), ("nccl", "libnccl", nccl_version)):
        path = find_library(stem, library_folders())
        if path is None:
            yield key, "not found"
            continue
        try:
            where = "a Python package" if os.path.dirname(path) in package_folders() else os.path.dirname(path)
            yield key, f"{version(ctypes.CDLL(path))}, from {where}"
        except (OSError, AttributeError) as error:
            yield key, f"{path} does not load: {str(error).splitlines()[0]}"


def driver():
    """`gpus` and what the driver itself says of the first one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [("gpus", 0), ("no_gpu", "no driver: libcuda.so.1 is not installed")]
    status = cuda.cuInit(0)
    count = ctypes.c_int()
    if status != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return [("gpus", 0), ("no_gpu", f"the driver finds no GPU: cuInit gives {status}")]
    version, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    facts = [("gpus", count.value), ("driver_cuda", cuda_version(version.value))]
    if count.value == 0:
        return facts + [("no_gpu", "the driver finds no GPU")]
    capability = [ctypes.c_int(), ctypes.c_int()]
    cuda.cuDeviceGetName(name, len(name), 0)
    for value, attribute in zip(capability, (MAJOR, MINOR)):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
    return facts + [("chip", name.value.decode()), ("compute_capability", f"{capability[0].value}.{capability[1].value}")]


def output(*command):
    """What a program prints; None without it, or if it fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS)
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def query(*fields):
    """nvidia-smi's values of the first GPU; None where it fails, as for a name that it does not know."""
    text = output("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0")
    values = text.splitlines()[0].split(", ") if text else []
    return values if len(values) == len(fields) else None


def nvidia_smi(fields=QUERY):
    """One query for all, since each may take seconds; an unknown name of an older tool spoils the others: then one by one."""
    if shutil.which("nvidia-smi") is None:
        return
    values = query(*fields)
    if values is not None:
        found = zip(fields, values)
    else:
        end = time.monotonic() + FIELD_BY_FIELD_SECONDS
        found = ((field, value[0]) for field in fields if time.monotonic() < end and (value := query(field)))
    for field, value in found:
        yield ("driver" if field == "driver_version" else f"gpu {field}"), value


def toolkit_version(roots):
    for root in roots:
        try:
            return json.loads(Path(root, "version.json").read_text())["cuda"]["version"]
        except (OSError, KeyError, ValueError):
            continue
    texts = (output(nvcc, "--version") for nvcc in ("nvcc", "/usr/local/cuda/bin/nvcc"))
    return next((re.search(r"release ([\d.]+)", text).group(1) for text in texts if text), "not found")


def toolkit():
    roots = [root for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    yield "toolkit", toolkit_version(roots)
    texts = (output(f"{folder}compute-sanitizer", "--version") for folder in ("", *(f"{root}/bin/" for root in roots)))
    yield "compute_sanitizer", next(filter(None, texts), "not found")


def machine():
    yield "date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    yield "kernel", f"{platform.system()} {re.match('[0-9.]*[0-9]', platform.release()).group()} {platform.machine()}"
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    yield "cpu", f"{len(os.sched_getaffinity(0))} cores, {models[0] if models else platform.processor()}"
    total = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    yield "memory_gib", f"{int(total.group(1)) / 2**20:.0f}"
    yield "glibc", platform.libc_ver()[1]
    yield "python", platform.python_version()


def packages():
    """As installed: importing torch reads gigabytes."""
    for name in ("torch", "transformers"):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "not found"


def compilers_toolkit(root):
    """Of a build folder with CUDA, "13.0"; None without."""
    for path in Path(root).glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        found = re.search(r'CMAKE_CUDA_COMPILER_VERSION "(\d+\.\d+)', path.read_text())
        if found:
            return found.group(1)
    return None


def build(root):
    manifest = Path(root, "MANIFEST.json")
    if manifest.exists():
        facts = json.loads(manifest.read_text())
        yield "anyorder", f"{facts['version']}, commit {facts['commit']}, built on {facts['built_on']}"
        yield "cuda_backend", f"yes, toolkit {facts['toolkit']}" if facts["cuda"] else "no"
        yield "glibc_at_least", facts["glibc_at_least"]
    else:
        cache = Path(root, "CMakeCache.txt")
        settings = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.MULTILINE)) if cache.exists() else {}
        commit = output("git", "-C", settings.get("CMAKE_HOME_DIRECTORY", "."), "describe", "--always", "--dirty", "--abbrev=12")
        yield "anyorder", f"commit {commit or 'unknown'}"
        compiler = compilers_toolkit(root)
        yield "cuda_backend", f"yes, toolkit {compiler}" if compiler and settings.get("ANYORDER_CUDA") != "OFF" else "no"


def old_driver(facts):
    """Why this driver cannot run this build, "" if it can: one of the same major version can, whatever the minor ones are."""
    toolkit = re.search(r"toolkit (\d+)\.\d+", facts.get("cuda_backend", ""))
    driver_major = facts.get("driver_cuda", "").partition(".")[0]
    if not toolkit or not driver_major or int(driver_major) >= int(toolkit.group(1)):
        return ""
    return f"driver of CUDA {facts['driver_cuda']} too old for CUDA {toolkit.group(0).split()[1]}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    facts = {}

    def say(pairs):
        for key, value in pairs:
            facts[key] = " ".join(str(value).split())
            print(f"{key}\t{facts[key]}", flush=True)

    for source in (machine, lambda: build(root), driver):
        say(source())
    if old_driver(facts):
        say([("old_driver", old_driver(facts))])
    for source in (nvidia_smi, toolkit, libraries, packages):
        say(source())


if __name__ == "__main__":
    if sys.argv[1:] == ["--package-folders"]:
        print(":".join(package_folders()))
    else:
        main()
