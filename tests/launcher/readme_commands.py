#!/usr/bin/env python3
"""The commands that the documentation shows, and the examples of every --help.

Usage: readme_commands.py BIN_DIR SOURCE_DIR words|run

words  every command of a code block and of a `code span` in Markdown: its program, command, options,
       choices and configuration keys are ones that the built programs have, and the configurations,
       scripts and programs of this tree that it names are there
run    the walks of these pages, on a small text, as they stand; only what takes long is set smaller
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ("anyorder", "anyorder-prep", "anyorder-train", "anyorder-ckptd")
# What the launcher and Slurm start; `anyorder --help` does not list them.
INTERNAL = {"clean-node", "help", "mpi-daemon", "node-process"}


def output_of(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Programs:
    """What the programs say of themselves."""

    def __init__(self, bin_dir):
        self.bin = Path(bin_dir)
        self.helps = {}
        listed = self.help_of("anyorder").split("Subcommands:")[1].split("Examples:")[0]
        self.commands = set(re.findall(r"^  ([a-z]+) ", listed, re.M))

    def help_of(self, *words):
        if words not in self.helps:
            status, text = output_of(self.bin / words[0], *words[1:], "--help")
            assert status == 0, f"{words} --help ends with {status}"
            self.helps[words] = text
        return self.helps[words]

    def options_of(self, *words):
        """Option to the word behind it in the help: "" for a flag."""
        text = self.help_of(*words).split("\nExamples:")[0]
        return {name: kind for names, kind in re.findall(r"^  ((?:-\w,)?--[\w-]+)(?: ([^ \n]+))?", text, re.M)
                for name in names.split(",")}

    def knows_key(self, name):
        return output_of(self.bin / "anyorder", "config", "--explain", name)[0] == 0


def markdown_commands(text):
    """(line, command) of code blocks, with continued lines joined, and of code spans."""
    is_code, pending, start = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            continue
        if is_code:
            start = start if pending else number
            pending += line.strip()
            if pending.endswith("\\"):
                pending = pending[:-1]
                continue
            yield start, pending
            pending = ""
    # A span may go over the end of a line, but not of a paragraph; code blocks are left out.
    prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    for span in re.finditer(r"`([^`]+)`", prose):
        if "\n\n" not in span[1]:
            yield prose[:span.start()].count("\n") + 1, " ".join(span[1].split())


def simple_commands(line):
    """The words of each command of a shell line, without comment and brackets of a synopsis."""
    line = re.sub(r"\s#\s.*$|^#.*$", "", line)
    line = re.sub(r"\w+=\$\(([^()]*)\)", r"\1", line)
    line = re.sub(r"\[(-[^\[\]]*)\]|(?<=\])\.\.\.", r" \1 ", line)
    for part in split_outside_quotes(line):
        try:
            words = shlex.split(part)
        except ValueError:
            continue
        if words:
            yield words


def split_outside_quotes(line):
    parts, quote = [""], ""
    for place, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == ";" or line[place:place + 2] == "&&" or line[place:place + 3] == " | " or line[place:place + 2] == "> ":
            parts.append("")
            continue
        parts[-1] += char
    return parts


def is_placeholder(text):
    return bool(re.fullmatch(r"[A-Z][A-Z0-9_.-]*|[A-Za-z./-]*\.\.\.|.*(?<![a-z])[A-Z]{2,}.*|[NKX]", text))


def faults_of(words, programs, source, folder=""):
    """What is wrong with a command of ours on a page of `folder`; nothing for others."""
    name = Path(words[0]).name
    if name in ("bash", "python3", "sh") and len(words) > 1 and "/" in words[1]:
        yield from script_faults(words[1:], source, folder)
    elif words[0].endswith((".sh", ".py")) and "/" in words[0]:
        yield from script_faults(words, source, folder)
    if name not in PROGRAMS or len(words) == 1 or words[0].endswith("/"):
        return
    call, rest = (name,), words[1:]
    if name == "anyorder":
        if rest[0].startswith("-") or is_placeholder(rest[0]):
            return
        if rest[0] not in programs.commands | INTERNAL:
            yield f"there is no command '{rest[0]}'"
            return
        if rest[0] in INTERNAL:
            return
        call, rest = (name, rest[0]), rest[1:]
    options = programs.options_of(*call)
    settings, config = [], None
    if "--" in rest:
        rest = rest[:rest.index("--")]
    for place, word in enumerate(rest):
        if not re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word):
            continue
        option, _, value = word.partition("=")
        if option not in options:
            yield f"{' '.join(call)} has no option {option}"
            continue
        if options[option] and not value:
            value = rest[place + 1] if place + 1 < len(rest) else ""
        kind = options[option] or ""
        if "|" in kind and kind == kind.lower() and value and not is_placeholder(value) and \
                not set(value.split("|")) <= set(kind.split("|")):
            yield f"{option} is not {value} but {kind}"
        if option == "--set":
            settings.append(value)
        if option == "--config" and value.startswith("configs/") and not (source / value).exists():
            yield f"there is no {value}"
        config = value if option == "--config" and (source / value).is_file() else config
    yield from setting_faults(settings, config, programs, source)


def setting_faults(settings, config, programs, source):
    whole = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if is_placeholder(key.split(".")[0]) or "*" in key or key in ("section.key", "KEY"):
            continue
        if not programs.knows_key(key):
            yield f"--set {setting}: no such key"
        elif value and not is_placeholder(value):
            whole += ["--set", setting]
    if config and whole:
        status, text = output_of(programs.bin / "anyorder", "config", "--check", source / config,
                                 "--set", "data.shards=x", *classes_of(config), *whole)
        if status:
            yield f"{config} with these settings: {text.strip()}"


def classes_of(config):
    return ["--set", "objective.num_classes=2"] if "classify" in config else []


def script_faults(words, source, folder):
    # A page names its own folder's scripts from there; a run directory has some, too.
    places = (source, source / folder, source / "tests" / folder)
    found = [place / words[0] for place in places if (place / words[0]).exists()]
    if is_placeholder(words[0]) or words[0].startswith(("~", "/", "$", "run/")):
        return
    if not found:
        yield f"there is no {words[0]}"
        return
    text = found[0].read_text()
    for word in words[1:]:
        option = word.split("=")[0]
        if re.fullmatch(r"--[a-z][\w-]*", option) and option not in text and "ctest" not in text:
            yield f"{words[0]} has no option {option}"


def check_words(programs, source):
    listed = subprocess.run(["git", "-C", str(source), "ls-files", "-co", "--exclude-standard", "*.md", "*.toml"],
                            capture_output=True, text=True, check=True).stdout.split()
    places = []
    for path in listed:
        if path.startswith("tests/bench/reports/") or path == "tests/VERIFIED.md" or not (source / path).exists():
            continue  # what was run at another commit
        text = (source / path).read_text()
        if path.endswith(".toml"):  # `spans` of the comments
            text = "\n".join(line.partition("#")[2].strip() if "#" in line else "" for line in text.splitlines())
        if path.endswith("FORMAT.md"):  # its blocks are files
            text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        places += [(f"{path}:{line}", command) for line, command in markdown_commands(text)]
    for command in sorted(programs.commands):
        examples = programs.help_of("anyorder", command).partition("\nExamples:\n")[2]
        places += [(f"anyorder {command} --help", line) for line in examples.splitlines()]
    num_commands, faults = 0, []
    for place, line in places:
        for words in simple_commands(line):
            num_commands += Path(words[0]).name in PROGRAMS and len(words) > 1
            faults += [f"{place}: {fault}\n    {line}"
                       for fault in faults_of(words, programs, source, str(Path(place).parent))]
    print("\n".join(faults))
    print(f"{num_commands} commands, {len(faults)} faults")
    assert num_commands > 150, "commands are not found"
    return not faults


# A command with one fault of each kind, and good ones.
CASES = [("anyorder lunch run", "there is no command 'lunch'"),
         ("build/bin/anyorder prep --inptu x", "prep has no option --inptu"),
         ("anyorder launch run [--ranks N] [--rank-count N]", "launch has no option --rank-count"),
         ("x=$(anyorder prep --bogus 8) && anyorder status run", "prep has no option --bogus"),
         ("anyorder export run --format onnx --output hf", "--format is not onnx"),
         ("anyorder launch run --set optimizer.lr=1 # a comment", "--set optimizer.lr=1: no such key"),
         ("anyorder launch run --config configs/none.toml", "there is no configs/none.toml"),
         ("anyorder launch run --config configs/gpt-tiny.toml --set sampling.seq_len=201",
          "model.max_positions is 128; learned positions need one for each slot: set it to 128 or less"),
         ("anyorder launch run --config configs/finetune/gpt-classify-tiny.toml --set sampling.seq_len=201",
          "set it to 128 or less; longer texts are cut"),
         ("bash tests/none.sh", "there is no tests/none.sh"),
         ("bash launcher/quickstart.sh --bogus", "launcher/quickstart.sh has no option --bogus"),
         ("anyorder launch run --config C.toml --set sampling.seq_len=N --set section.key=value", ""),
         ("echo 'a; b --c' | anyorder fill runs/a --input - --output - --score", ""),
         ("anyorder submit --config base.toml --run-dir run -- --qos=long", ""),
         ("anyorder export --format hf|peft [--raw-weights]", "")]


def check_itself(programs, source):
    for line, expected in CASES:
        found = [fault for words in simple_commands(line) for fault in faults_of(words, programs, source)]
        assert bool(found) == bool(expected) and all(expected in fault for fault in found), (line, found)


# Pages whose first block with this command is run, in folders of their own; what they need of
# earlier walks; lines that are left out, for want of the model; and what makes it short.
FEW_STEPS = " --set train.steps=4 --set checkpoint.every=4 --set optimizer.warmup_steps=1 --set cpu.threads=1"
WALKS = [
    ("own text", "README.md", "generate run", {}, None),
    ("imported", "launcher/huggingface/README.md", "anyorder import", {"hf": "own text/hf"}, None),
    ("adapters", "core/objective/finetuning.md", "train.lora.rank", {"hf": "own text/hf"}, None),
    ("classifier", "configs/finetune/README.md", "xlnet_finetuning", {"xlnet": "own text/hf"}, None),
    ("from scratch", "configs/finetune/README.md", "bert-classify-tiny.toml", {}, None),
    ("conversations", "configs/finetune/README.md", "anyorder chat   tuned", {"shards": "own text/shards"}, None),
    ("classes", "launcher/inference/README.md", "runs/topics", {"runs/topics": "classifier/topics"}, None),
    ("blanks", "launcher/texts/README.md", "anyorder fill", {"runs/xlnet": "own text/run"}, "runs/llada"),
    ("drawn", "launcher/show/README.md", "--trace-text", {"runs/a": "own text/run"}, None),
    ("judged", "launcher/likelihood/README.md", "runs/gpt", {"runs/gpt": "conversations/llama", "texts.jsonl": "own text/texts.jsonl"},
     "runs/llada"),
]


def block_of(source, page, mark):
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", (source / page).read_text(), re.M | re.S):
        if not language and mark in block:
            return block.replace("\\\n", " ")
    raise AssertionError(f"{page}: no block with '{mark}'")


def write_inputs(folder, source):
    pages = [page for top in ("core", "data", "launcher", "tests")
             for page in sorted((source / top).rglob("*.md"))]
    text = "\n\n".join(page.read_text() for page in pages)
    (folder / "story.txt").write_text(text)
    (folder / "prompts.txt").write_text("A run is\nThe text of\n")
    (folder / "lines.txt").write_text("The ball.\nA song.\n")
    (folder / "new.jsonl").write_text('{"text": "The old goal."}\n{"text": "A song."}\n')
    lines = [line for line in text.splitlines() if re.fullmatch(r"[\w ,.]{40,}", line)]
    (folder / "chats.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": line}, {"role": "assistant", "content": line.upper()}] * 2}) + "\n"
        for line in lines[:20]))
    for name in ("train", "held-out"):
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(
            f'"{line}",{"long" if len(line) > 70 else "short"}\n' for line in lines[:60]))


def run_walk(name, source, work, walk):
    _, page, mark, needs, left_out = walk
    folder = work / name
    (folder / "build").mkdir(parents=True)
    (folder / "runs").mkdir()
    write_inputs(folder, source)
    for link, target in {"configs": source / "configs", "build/bin": work / "bin",
                         **{key: work / value for key, value in needs.items()}}.items():
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(target)
    for line in block_of(source, page, mark).splitlines():
        if not line.strip() or (left_out and left_out in line):
            continue
        command, hash_sign, comment = line.partition(" #")
        command = command.replace("TEXT...", "story.txt").replace("=K ", "=2 ")
        if " launch " in command:
            command += FEW_STEPS
        done = subprocess.run(["bash", "-c", command + hash_sign + comment], cwd=folder, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL)
        print(f"{page}: {command.strip()}: {done.returncode}")
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:])
            return False
    return True


def run_pages(programs, source):
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "bin").symlink_to(programs.bin.resolve())
        os.environ["PATH"] = f"{work / 'bin'}:{os.environ['PATH']}"
        return all(run_walk(walk[0], source, work, walk) for walk in WALKS)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    built, tree = Programs(sys.argv[1]), Path(sys.argv[2]).resolve()
    check_itself(built, tree)
    checks = {"words": check_words, "run": run_pages}
    sys.exit(0 if checks[sys.argv[3]](built, tree) else 1)
