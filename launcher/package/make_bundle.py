#!/usr/bin/env python3
"""Makes a relocatable archive of the programs, for machines where nothing can be installed (cmake --build build --target bundle).

Usage: make_bundle.py --source DIR --bin DIR --version V --arch A --cuda yes|no --output FILE.tar.xz --programs NAME... --scripts FILE... --tests NAME...

Needs patchelf (Open MPI's libraries carry the paths of their machine), binutils, ldd and ompi_info. What is in the archive, and how
it is used, is told in README.txt, which it contains (READ_ME below). Exit status: 0 done, 65 the bundle would not work or is too
large, 74 a tool is missing or failed.
"""
import argparse
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

# The archive and the source's tracked files beside it: what some machines take in one transfer.
MAX_BYTES = 64 * 2**20

# Four programs have the same kernels in them, which a window of 128 MiB stores once; the fastest
# preset, since slower ones save 2 %.
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 128 * 2**20}]

# Of the machine that runs the bundle: glibc and its loader belong to the kernel's distribution.
GLIBC = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nsl|BrokenLocale|thread_db|nss_\w+))\.so(\.|$)")
# Of the GPU's driver and toolkit: opened at run time where they are, so that programs start without
# them.
TOOLKIT = re.compile(r"^lib(cuda|nvidia-ml|cublas|cublasLt|cudart|nccl)\.so(\.|$)")
# Open MPI's plugins for networks whose libraries must fit the machine's driver, for SHMEM and for
# other people's schedulers.
DROPPED_PLUGINS = re.compile(r"_(ucx|ofi|openib|psm2?|usnic|verbs|monitoring|flux|jsm|gridengine)\.so$|^mca_(spml|scoll|sshmem|memheap|atomic|io|fbtl|fcoll|fs|sharedfp)_")

READ_ME = """anyorder {version} for {arch}, made on {built_on} from commit {commit}; CUDA backend: {cuda}.

Runs on Linux with glibc {glibc} or newer, from whatever folder it lies in; nothing needs to be installed. {gpu}

  bin/anyorder --help                      the programs; they find each other here
  bin/anyorder launch ... --ranks 2        ranks on this machine, by the Open MPI in mpi/
  bin/mpirun -n 2 bin/dist.mpi_test
  tests/gpu/check.sh                       checks and measures this machine's GPU (tests/gpu/README.md)
  bin/anyorder doctor ...                  checks a Slurm cluster

Between several machines ranks talk TCP: the plugins for InfiniBand and its like must fit a machine's drivers and are left out.
licenses/ has the terms of every library in lib/; data/readmes.txt is this project's own documentation, as text to train on.
"""

MPIRUN = """#!/bin/sh
# The mpirun of this bundle, with the plugins of this bundle. Its usual way to other machines ends
# it where there is no ssh.
command -v ssh >/dev/null || command -v rsh >/dev/null || export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
mpi=$(cd "${0%/*}/../mpi" && pwd)
OPAL_PREFIX=$mpi PRTE_PREFIX=$mpi PMIX_PREFIX=$mpi PATH=$mpi/bin:$PATH exec mpirun "$@"
"""


class BundleError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def run(*command, environment=None):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=environment)
    except FileNotFoundError:
        raise BundleError(74, f"there is no '{command[0]}' in PATH; install it (Debian packages: patchelf binutils openmpi-bin)") from None
    if done.returncode != 0:
        raise BundleError(74, f"'{' '.join(map(str, command))}' failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def needed_libraries(elf, environment=None):
    """Name -> path of every library that the loader would map, direct or not, less those of glibc."""
    libraries = {}
    for line in run("ldd", elf, environment=environment).splitlines():
        words = line.split()
        if len(words) < 2 or words[1] != "=>" or GLIBC.match(words[0]):
            continue
        if TOOLKIT.match(words[0]):
            raise BundleError(65, f"{elf.name} is linked with {words[0]}: it would not start where no driver or toolkit is; open it at run time")
        if words[2] == "not":
            raise BundleError(65, f"{elf.name} needs {words[0]}, which this machine does not have")
        libraries[words[0]] = Path(words[2])
    return libraries


class Stage:
    """The tree that becomes the archive."""

    def __init__(self, root):
        self.root = root
        self.elfs = []  # of ours and of Open MPI, whose libraries must come along
        self.libraries = {}
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)

    def add(self, source, target, mode=0o644):
        return self.write(target, source.read_bytes(), mode)

    def add_elf(self, source, target):
        if not source.exists():
            raise BundleError(65, f"{source} does not exist; build it first")
        self.libraries.update(needed_libraries(source))
        self.elfs.append(self.add(source, target, 0o755))

    def write(self, target, content, mode=0o644):
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def add_libraries(self):
        for name, path in sorted(self.libraries.items()):
            self.elfs.append(self.add(path.resolve(), f"lib/{name}", 0o755))

    def relocate(self):
        """Each file finds the others by its own place. RPATH, not RUNPATH: LD_LIBRARY_PATH, which CUDA's libraries are found by, may
        lead to another libmpi or libstdc++ as well."""
        for elf in self.elfs:
            # But for the names of kernels: after an error of the GPU the CUDA runtime may not know
            # them any more.
            run("strip", "--strip-unneeded", "--wildcard", "--keep-symbol=*Kernel*", elf)
            up = "/".join([".."] * (len(elf.relative_to(self.root).parts) - 1))
            run("patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/{up}/lib", elf)

    def check(self):
        """Nothing may lead out of the tree but to glibc."""
        for elf in self.elfs:
            for path in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", run("readelf", "-d", elf)):
                if not re.fullmatch(r"\$ORIGIN(/\.\.)+/lib", path):
                    raise BundleError(65, f"{elf} looks for libraries in {path}")
            for name, path in needed_libraries(elf, environment={}).items():
                if not path.resolve().is_relative_to(self.root.resolve()):
                    raise BundleError(65, f"{elf} would take {name} from {path}")

    def glibc(self):
        versions = {tuple(map(int, version.split("."))) for elf in self.elfs
                    for version in re.findall(r"Name: GLIBC_(\d+(?:\.\d+)+)", run("readelf", "-V", elf))}
        return ".".join(map(str, max(versions)))


def places_of(*command):
    """What ompi_info or prte_info tells of its own paths; nothing where it is not installed."""
    if shutil.which(command[0]) is None:
        return {}
    found = re.findall(r"^ *(?:path:)?(\w+): *(/.+)$", run(*command, "--path", "all"), re.MULTILINE)
    return {name.lower(): Path(path) for name, path in found}


def add_open_mpi(stage):
    """Its programs, plugins and texts. Below its prefix (dist/start_guard.h) each part of it, from release 5 on also PRRTE and PMIx,
    looks for them where they were below its own."""
    open_mpi = places_of("ompi_info", "--parsable")
    for program in ("mpirun", "orterun", "orted", "prterun", "prted"):
        if program == "mpirun" or (open_mpi["bindir"] / program).exists():
            stage.add_elf(open_mpi["bindir"] / program, f"mpi/bin/{program}")
    parts = [open_mpi, places_of("prte_info")]
    if parts[1]:  # pmix_info is in no package of Debian 13
        library = stage.libraries["libpmix.so.2"].resolve().parent
        parts.append({"prefix": library.parent, "pkglibdir": library / "pmix", "pkgdatadir": library.parent / "share/pmix"})
    for part in filter(None, parts):
        for plugin in sorted(part["pkglibdir"].glob("*mca_*.so")):
            if not DROPPED_PLUGINS.search(plugin.name):
                stage.add_elf(plugin, Path("mpi") / plugin.relative_to(part["prefix"]))
        for text in sorted(part["pkgdatadir"].glob("help-*.txt")):
            stage.add(text, Path("mpi") / text.relative_to(part["prefix"]))
    stage.write("bin/mpirun", MPIRUN, 0o755)
    return re.search(r"Open MPI: (\S+)", run("ompi_info")).group(1)


def add_licenses(stage):
    """The terms under which each library may be passed on, where the distribution keeps them."""
    if shutil.which("dpkg-query") is None:
        return
    # dpkg knows a file by the path it was installed as, which may lack the /usr that merged systems
    # add. It fails where it does not know one of the names.
    paths = {path.resolve() for path in stage.libraries.values()}
    names = sorted(str(name) for path in paths for name in (path, Path("/", *path.parts[2:])))
    found = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True, check=False).stdout
    for package in sorted({line.split(":")[0] for line in found.splitlines()}):
        text = Path("/usr/share/doc", package, "copyright")
        if text.exists():
            stage.add(text, f"licenses/{package}.txt")


def prose(markdown):
    """The sentences of a Markdown text, one a line: what is not prose (code, tables, headings) is left out."""
    markdown = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    paragraphs = []
    for block in re.split(r"\n\s*\n", markdown):
        lines = [line.strip() for line in block.splitlines() if not re.match(r"\s*([|#>]|    )", line)]
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(line.lstrip("-*0123456789. ") for line in lines))
        text = re.sub(r"[`*]", "", text).strip()
        if len(text) > 80:
            paragraphs.append("\n".join(re.split(r"(?<=[.;:]) +", text)))
    return "\n\n".join(paragraphs)


def add_texts(stage, source, share):
    """Text to train on, configurations, checks of a machine; from `share`, where it exists, completion
    and man pages."""
    listed = run("git", "-C", source, "ls-files", "*.md").split()
    stage.write("data/readmes.txt", "\n\n".join(filter(None, (prose((source / name).read_text()) for name in listed))) + "\n")
    for config in sorted((source / "configs").glob("*.toml")):
        stage.add(config, f"configs/{config.name}")
    stage.add(source / "LICENSE", "LICENSE")
    for path in sorted(share.rglob("*")):
        if path.is_file():
            stage.add(path, Path("share") / path.relative_to(share))
    for path in sorted((*(source / "tests/gpu").glob("*"), *(source / "tests/bench/peers").glob("*.py"), *(source / "slurm").glob("doctor*"), source / "slurm/check_environment.sh")):
        if path.is_file() and path.suffix in (".sh", ".py", ".toml", ".json", ".md", ""):
            stage.add(path, path.relative_to(source), 0o755 if path.suffix in (".sh", "") else 0o644)


def pretty_name():
    names = re.findall(r'^PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text(), re.MULTILINE)
    return names[0] if names else "Linux"


def describe(stage, options, mpi):
    commit = run("git", "-C", options.source, "describe", "--always", "--dirty", "--abbrev=12").strip()
    facts = {"version": options.version, "commit": commit, "arch": options.arch, "cuda": options.cuda == "yes",
             "toolkit": options.toolkit, "built_on": pretty_name(), "glibc_at_least": stage.glibc(), "open_mpi": mpi,
             "programs": options.programs, "tests": options.tests}
    major = options.toolkit.split(".")[0]
    gpu = f"For a GPU: a driver and a toolkit\nof CUDA {major}, whose cuBLASLt and NCCL are looked for at run time." if options.cuda == "yes" else "It has no code for GPUs."
    stage.write("MANIFEST.json", json.dumps(facts, indent=1) + "\n")
    stage.write("README.txt", READ_ME.format(version=options.version, arch=options.arch, built_on=facts["built_on"], commit=commit,
                                             cuda=options.cuda, glibc=facts["glibc_at_least"], gpu=gpu))


def tracked_bytes(source):
    names = run("git", "-C", source, "ls-files", "-z").split("\0")
    return sum((source / name).stat().st_size for name in names if (source / name).is_file())


def pack(stage, output, beside=0):
    """The same tree gives the same bytes: no times, no owners, names in order. `beside`: bytes that must fit the limit, too."""
    name = output.name.removesuffix(".tar.xz")

    def anonymous(entry):
        entry.uid = entry.gid = 0
        entry.mtime = 315532800  # 1980: tools warn of 1970
        entry.uname = entry.gname = ""
        return entry

    partial = output.with_name(output.name + ".partial")
    with lzma.open(partial, "wb", filters=XZ_FILTERS) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(stage.root.rglob("*")):
            archive.add(path, f"{name}/{path.relative_to(stage.root)}", recursive=False, filter=anonymous)
    size = partial.stat().st_size
    if size + beside > MAX_BYTES:
        partial.unlink()
        largest = sorted(stage.elfs, key=lambda elf: -elf.stat().st_size)[:8]
        raise BundleError(65, f"{output.name} would have {size / 1e6:.1f} MB and the source has {beside / 1e6:.1f} MB, "
                          f"the limit of both is {MAX_BYTES / 1e6:.1f}; largest, unpacked: " +
                          ", ".join(f"{elf.relative_to(stage.root)} {elf.stat().st_size / 1e6:.1f}" for elf in largest))
    partial.replace(output)
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("source", "bin", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("version", "arch"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cuda", choices=("yes", "no"), required=True)
    parser.add_argument("--toolkit", default="", help="version of the CUDA toolkit of the build")
    parser.add_argument("--programs", nargs="+", required=True)
    parser.add_argument("--scripts", type=Path, nargs="*", default=[], help="programs in Python, which go beside the others")
    parser.add_argument("--tests", nargs="*", default=[])
    options = parser.parse_args()
    stage = Stage(options.output.with_name(options.output.name.removesuffix(".tar.xz")))
    try:
        for name in options.programs + options.tests:
            stage.add_elf(options.bin / name, f"bin/{name}")
        for script in options.scripts:
            stage.add(script, f"bin/{script.name}", 0o755)
        mpi = add_open_mpi(stage)
        stage.add_libraries()
        stage.relocate()
        stage.check()
        add_licenses(stage)
        add_texts(stage, options.source, options.bin.parent / "share")
        describe(stage, options, mpi)
        beside = tracked_bytes(options.source)
        size = pack(stage, options.output, beside)
        unpacked = sum(path.stat().st_size for path in stage.root.rglob("*") if path.is_file())
    except BundleError as error:
        print(f"make_bundle.py: {error}", file=sys.stderr)
        return error.status
    finally:
        shutil.rmtree(stage.root, ignore_errors=True)
    print(f"{options.output}: {size / 1e6:.1f} MB, {unpacked / 1e6:.1f} unpacked, {(size + beside) / 2**20:.1f} MiB with the source's files; "
          f"{len(options.programs)} programs, {len(options.tests)} test programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
