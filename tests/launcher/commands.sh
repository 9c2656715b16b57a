#!/usr/bin/env bash
# What the programs say of themselves: --help, --version, `config`, completion, manual pages.
#
# Usage: commands.sh BIN_DIR SOURCE_DIR CASE
set -u
bin=$1 source=$2 name=$3
anyorder=$bin/anyorder
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
expect_status() { [ "$1" -eq "$2" ] || fail "exit status $1, expected $2 ($3): $(cat "$work/err")"; }
expect_text() { grep -q -e "$1" -- "$2" || fail "'$1' is not in: $(cat "$2")"; }
commands() { "$anyorder" --help | sed -n '/^Subcommands:/,/^Examples:/s/^  \([a-z]\+\) .*/\1/p'; }

case $name in
help)
  [ "$(commands | wc -l)" -ge 13 ] || fail "--help lists: $(commands)"
  for command in $(commands); do
    "$anyorder" "$command" --help >"$work/out" || fail "$command --help"
    expect_text "^Examples:" "$work/out"
    expect_text "^  .*anyorder $command" "$work/out"
    # An option without a sentence ends after its name.
    ! grep -nE '^  (-[a-z],)?--[a-z-]+( [^ ]+)?$' -A1 "$work/out" | grep -E '^[0-9]+-  [-a-z]|^[0-9]+-$' || fail "$command: an option without help"
    [ "$(wc -L <"$work/out")" -le 160 ] || fail "$command --help has a line of $(wc -L <"$work/out") columns"
  done
  # Nothing that is not plain text, whatever the terminal.
  ! TERM=xterm-256color "$anyorder" launch --help | grep -q $'\033' || fail "an escape sequence in --help" ;;

version)
  "$anyorder" --version >"$work/out" 2>"$work/err"; expect_status $? 0 "--version"
  for line in '^anyorder [0-9]*\.[0-9]*\.[0-9]*$' '^commit: *\(unknown\|[0-9a-f]\+\)' '^compilers: *[A-Z].* [0-9]' '^CUDA: *\(none\|[0-9]\)' \
              '^oneDNN: *[0-9]*\.[0-9]' '^MPI: *[A-Z].*[0-9]' '^device: *CPU, ' '^device: *\(no GPU: \|GPU 0, \)'; do
    expect_text "$line" "$work/out"
  done
  for program in anyorder-prep anyorder-train anyorder-ckptd; do
    "$bin/$program" --version >"$work/out" || fail "$program --version"
    expect_text "^$program [0-9]" "$work/out"
  done ;;

config)
  "$anyorder" config >"$work/out" 2>"$work/err"; expect_status $? 0 "config"
  # In a frozen file's order, so that the list with its sentences left out is one.
  grep -E '^(\[|[a-z_0-9]+ = )' "$work/out" | sed 's/  (.*//' >"$work/defaults.toml"
  "$anyorder" config --check "$work/defaults.toml" --set data.shards=shards >"$work/out" 2>"$work/err"; expect_status $? 0 "defaults"
  [ ! -s "$work/out" ] && [ ! -s "$work/err" ] || fail "--check of a good file is not silent"
  "$anyorder" config --explain train.global_batch_size >"$work/out" 2>"$work/err"; expect_status $? 0 "--explain"
  for text in '^train.global_batch_size$' 'default: 16' 'bounds: at least 1' 'unit: sequences' '\--set train.global_batch_size='; do
    expect_text "$text" "$work/out"
  done
  "$anyorder" config --explain objective.name >"$work/out" 2>"$work/err"; expect_status $? 0 "--explain of an enumeration"
  expect_text "permutation_lm, " "$work/out"
  while read -r key text; do
    "$anyorder" config --explain "$key" >"$work/out" 2>"$work/err"; expect_status $? 64 "--explain $key"
    expect_text "unknown key '$key'.*$text" "$work/err"
  done <<'KEYS'
train.lanes its name is now 'train.global_batch_size'
model.num_layer did you mean 'model.num_layers'
train.mem_len did you mean 'model.mem_len'
KEYS
  for file in "$source"/configs/*.toml; do
    "$anyorder" config --check "$file" --set data.shards=shards --set eval.every=0 >"$work/out" 2>"$work/err"; expect_status $? 0 "$file"
  done
  printf '[train]\nlanes = 4\nsteps = 0.5\n' >"$work/bad.toml"
  "$anyorder" config --check "$work/bad.toml" >"$work/out" 2>"$work/err"; expect_status $? 64 "a bad file"
  expect_text "bad.toml:2: unknown key 'train.lanes'; its name is now" "$work/err"
  expect_text "bad.toml:3: train.steps is 0.5 but must be a whole number" "$work/err"
  "$anyorder" config --check "$work/defaults.toml" --set train.steps=0 2>"$work/err"; expect_status $? 64 "a bad override"
  expect_text "train.steps is 0 but must be at least 1" "$work/err" ;;

bash)
  "$anyorder" completion bash >"$work/anyorder.bash" || fail "completion bash"
  bash -n "$work/anyorder.bash" || fail "syntax"
  ! command -v shellcheck >"$work/out" || shellcheck -s bash "$work/anyorder.bash" || fail "shellcheck"
  cd "$work" && touch a_file.toml "a_file of words"
  # shellcheck source=/dev/null
  source "$work/anyorder.bash"
  compopt() { :; }  # known only while a key is pressed
  # expect WANTED WORD...: that typing the words and a tab offers WANTED.
  expect() {
    local wanted=$1 offered; shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _anyorder
    for offered in "${COMPREPLY[@]}"; do [ "$offered" = "$wanted" ] && return; done
    fail "'$*' offers '${COMPREPLY[*]}', not '$wanted'"
  }
  expect launch anyorder la
  expect prep anyorder ''
  expect --version anyorder --v
  expect --run-dir anyorder status --r
  expect --vocab-size anyorder prep --voc
  expect slurm anyorder launch --backend s
  expect a_file.toml anyorder launch --config a_
  expect a_file.toml anyorder config --check ''
  expect train.steps= anyorder launch --set train.st
  expect fast anyorder launch --set dist.reduction = f
  expect permutation_lm anyorder launch --set objective.name =
  expect train.steps anyorder config --explain train.st
  expect zsh anyorder completion z
  expect "a_file of words" anyorder inspect a_
  expect a_file.toml anyorder inspect a_
  COMP_WORDS=(anyorder launch --ranks '') COMP_CWORD=3; _anyorder
  [ "${#COMPREPLY[@]}" -eq 0 ] || fail "--ranks offers '${COMPREPLY[*]}'" ;;

zsh)
  "$anyorder" completion zsh >"$work/_anyorder" || fail "completion zsh"
  expect_text "^#compdef anyorder" "$work/_anyorder"
  "$anyorder" completion fish >"$work/out" 2>"$work/err"; expect_status $? 64 "an unknown shell"
  if command -v zsh >"$work/out"; then
    zsh -n "$work/_anyorder" || fail "syntax"
  else
    echo "no zsh: its syntax is not checked"; exit 77
  fi ;;

man)
  "$anyorder" man "$work/man" || fail "man"
  for command in $(commands); do
    expect_text '^\.SH EXAMPLES' "$work/man/anyorder-$command.1"
  done
  expect_text '^\.SH COMMANDS' "$work/man/anyorder.1"
  if command -v groff >"$work/out"; then
    groff -man -Tutf8 -ww "$work"/man/*.1 >"$work/out" 2>"$work/err" || fail "groff"
    ! grep -v "cannot break\|can't break\|cannot adjust" "$work/err" || fail "groff warns"
  fi ;;

*) fail "there is no case '$name'" ;;
esac
