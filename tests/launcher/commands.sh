#!/usr/bin/env bash
# What the programs say of themselves: --help, --version, `config`, completion, manual pages.
#
# Usage: commands.sh BIN_DIR SOURCE_DIR CASE
set -u
bin=$1 source=$2 case=$3
anyorder=$bin/anyorder
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
name=$(mktemp -d) && trap 'rm -rf "$name"' EXIT
commands() { "$anyorder" --help | sed -n '/^Subcommands:/,/^Examples:/s/^  \([a-z]\+\) .*/\1/p'; }

case $case in
help)
  [ "$(commands | wc -l)" -ge 13 ] || fail "--help lists: $(commands)"
  for command in $(commands); do
    "$anyorder" "$command" --help >"$name/out" || fail "$command --help"
    expect_text "^Examples:" "$name/out"
    expect_text "^  .*anyorder $command" "$name/out"
    # An option without a sentence ends after its name.
    ! grep -nE '^  (-[a-z],)?--[a-z-]+( [^ ]+)?$' -A1 "$name/out" | grep -E '^[0-9]+-  [-a-z]|^[0-9]+-$' || fail "$command: an option without help"
    # What a parser calls its types is no word for people.
    ! grep -nE '\b(INT|UINT|FLOAT|TEXT|BOOLEAN)\b|->|\[[0-9-]+ - ' "$name/out" || fail "$command --help has the parser's words"
    [ "$(wc -L <"$name/out")" -le 160 ] || fail "$command --help has a line of $(wc -L <"$name/out") columns"
  done
  for program in anyorder-train anyorder-ckptd; do
    "$bin/$program" --help >"$name/out"
    ! grep -nwE 'INT|UINT|FLOAT' "$name/out" || fail "$program --help has the parser's words"
  done
  # A command that is none has no help.
  expect_refused 64 "unknown command 'statsu'; did you mean 'status'?" "$anyorder" statsu --help
  expect_refused 64 "unknown command 'UNKNOWN'; commands: " "$anyorder" UNKNOWN --help
  diff <("$anyorder" help status) <("$anyorder" status --help) || fail "help status is not status --help"
  for option in --device --batches --objective --threads; do
    expect_refused 64 "$option" "$anyorder" eval run $option '?'
    ! grep -E '\->|\{|\[|FAILED' "$name/err" || fail "$option has the parser's words"
  done
  # What stands in one list is in no other; what other systems call an option is understood.
  [ "$("$anyorder" status --help | grep -c 'run directory')" -eq 1 ] || fail "the run directory is explained twice"
  for words in "eval run --shards x:--data" "generate run --prompt x:--input -" "status --model x:--run-dir" "launch --nproc_per_node 2:--ranks'? See"; do
    expect_refused 64 "did you mean '${words#*:}" "$anyorder" ${words%%:*}
  done
  # What is offered is taken there.
  for command in $(commands); do
    for word in --text --prompts --shards --out --gpus --lr --max-steps --seq_length --hidden_size --eval_steps --vocab_size --seed; do
      offered=$("$anyorder" "$command" $word 2>&1 | sed -n "s/.*did you mean '\([^']*\)'.*/\1/p")
      [ -z "$offered" ] || "$anyorder" "$command" --help | grep -qE -- "^  (-[a-z],)?${offered%% *}( |,|$)" || fail "$command has no $offered"
      [ "$offered" != "--input -" ] || "$anyorder" "$command" --help | tr -s ' \n' ' ' | grep -q -- "-: standard input" || fail "$command: $offered"
      case $offered in "--set "*) key=${offered#--set } && key=${key%%=*}
        ! "$anyorder" "$command" run --set "$key=1" 2>&1 | grep -q "is not possible\|is of one run\|unknown key" || fail "$command refuses $offered" ;;
      esac
    done
  done
  # Nothing that is not plain text, whatever the terminal.
  ! TERM=xterm-256color "$anyorder" launch --help | grep -q $'\033' || fail "an escape sequence in --help" ;;

version)
  "$anyorder" --version >"$name/out" 2>"$name/err"; expect_status $? 0 "--version"
  for line in '^anyorder [0-9]*\.[0-9]*\.[0-9]*$' '^commit: *\(unknown\|[0-9a-f]\+\)' '^compilers: *[A-Z].* [0-9]' '^CUDA: *\(none\|[0-9]\)' \
              '^oneDNN: *[0-9]*\.[0-9]' '^MPI: *[A-Z].*[0-9]' '^device: *CPU, ' '^device: *\(no GPU: \|GPU 0, \)'; do
    expect_text "$line" "$name/out"
  done
  for program in anyorder-prep anyorder-train anyorder-ckptd; do
    "$bin/$program" --version >"$name/out" || fail "$program --version"
    expect_text "^$program [0-9]" "$name/out"
  done ;;

plan)
  plan() { "$anyorder" plan --config "$source/configs/$1.toml" "${@:2}" >"$name/out" 2>"$name/err"; }
  value() { python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$name/out" "$1"; }
  expect_value() { [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), not $2"; }
  plan llada-8b --vocab-size 126464 --gpu h100 --nodes 1; expect_status $? 0 "the plan of a large model"
  for text in "^8,015,585,280 parameters, vocabulary 126,464, 8 ranks on 1 node" "optimizer  .* GiB  computed" "CUDA's context .*  assumed: " \
              "^It fits: [0-9.]* GiB of each GPU are left" "GPU-hours  .*  assumed"; do
    expect_text "$text" "$name/out"
  done
  # Each figure says where it comes from.
  ! sed '$d' "$name/out" | grep '^  ' | grep -vE '  (measured|computed|assumed)' || fail "a figure without an origin"
  plan llada-8b --vocab-size 126464 --gpu h100 --nodes 1 --json; expect_status $? 0 "--json"
  expect_value 'j["fits"], j["settings_that_fit"], len(j["origins"]) > 30' "(True, [], True)"
  expect_value 'sum(j["memory_bytes"].values()) == j["peak_bytes"] and j["checkpoint_bytes"] == 12 * j["parameters"]' True
  expect_value 'abs(j["tokens_per_second"] * j["step_seconds"] / (1024 * 4096) - 1) < 1e-9' True
  expect_value 'all(j[key] > 0 for key in "step_flops step_memory_bytes step_node_bytes days device_hours lost_percent".split())' True
  # The smallest cluster; and where a run does not fit, what is named fits.
  plan llada-8b --vocab-size 126464 --gpu h100 --json; expect_value 'j["ranks"], j["fits"]' "(8, True)"
  plan bert-base --vocab-size 30522 --gpu mine --gpu-memory 3.2 --nodes 1 --gpus-per-node 1 --json; expect_status $? 0 "another GPU"
  expect_value 'j["fits"] or not j["settings_that_fit"]' False
  settings=$(value '" ".join("--set " + one for one in j["settings_that_fit"])')
  plan bert-base --vocab-size 30522 --gpu mine --gpu-memory 3.2 --nodes 1 --gpus-per-node 1 --json $settings; expect_value 'j["fits"]' True
  plan bert-base --vocab-size 30522 --gpu mine --gpu-memory 3.2 --nodes 1 --gpus-per-node 1; expect_text "and changes no bit: $settings\. What fits and changes the run: --set " "$name/out"
  plan xlnet-tiny --vocab-size 8000 --set train.device=cpu; expect_status $? 0 "this machine"
  expect_text "1 rank on 1 node (cpu)" "$name/out"; expect_text "Times need a run on such a device: --calibrate RUN" "$name/out"
  # Sizes beyond all numbers are told, and none are computed for; nothing takes long.
  plan xlnet-tiny --vocab-size 8000 --gpu h100 --nodes 1 --set model.num_layers=65536 --set model.model_dim=1048576; expect_status $? 0 "a giant"
  expect_text "at least  .* GiB" "$name/out"; expect_text "^It does not fit. No setting is enough" "$name/out"
  refused() { expect_refused_in_a_line 64 "$1" "$anyorder" plan "${@:2}"; }
  refused "'foo' is none of 'B200', .* --gpu-memory N" --config "$source/configs/llama-tiny.toml" --vocab-size 8000 --gpu foo
  refused "is no dataset that tells the vocabulary; give it: --vocab-size N" --config "$source/configs/llama-tiny.toml" --gpu h100 --set data.shards=none
  refused "name a configuration (--config FILE) or a run" --gpu h100
  refused "3000 ranks for 8 microbatches" --config "$source/configs/llama-tiny.toml" --gpu h100 --vocab-size 8000 --nodes 1 --gpus-per-node 3000
  expect_refused_in_a_line 74 "none" "$anyorder" plan --config "$source/configs/llama-tiny.toml" --gpu h100 --vocab-size 8000 --nodes 1 --calibrate "$name/none" ;;

config)
  "$anyorder" config >"$name/out" 2>"$name/err"; expect_status $? 0 "config"
  # In a frozen file's order, so that the list with its sentences left out is one.
  grep -E '^(\[|[a-z_0-9]+ = )' "$name/out" | sed 's/  (.*//' >"$name/defaults.toml"
  "$anyorder" config --check "$name/defaults.toml" --set data.shards=shards >"$name/out" 2>"$name/err"; expect_status $? 0 "defaults"
  [ ! -s "$name/out" ] && [ ! -s "$name/err" ] || fail "--check of a good file is not silent"
  "$anyorder" config --explain train.global_batch_size >"$name/out" 2>"$name/err"; expect_status $? 0 "--explain"
  for text in '^train.global_batch_size$' 'default: 16' 'bounds: at least 1' 'unit: sequences' '\--set train.global_batch_size='; do
    expect_text "$text" "$name/out"
  done
  "$anyorder" config --explain objective.name >"$name/out" 2>"$name/err"; expect_status $? 0 "--explain of an enumeration"
  expect_text "permutation_lm (xlnet, plm), " "$name/out"
  expect_refused 64 "unknown key 'optimizer.lr'; did you mean 'optimizer.learning_rate'?" \
    "$anyorder" config --explain optimizer.lr
  expect_refused 64 "unknown key 'train.lanes'; its name is now" "$anyorder" config --explain train.lanes
  for file in "$source"/configs/*.toml; do
    "$anyorder" config --check "$file" --set data.shards=shards --set eval.every=0 >"$name/out" 2>"$name/err"; expect_status $? 0 "$file"
  done
  printf '[train]\nlanes = 4\nsteps = 0.5\n' >"$name/bad.toml"
  expect_refused 64 "bad.toml:2: unknown key 'train.lanes'; its name is now" \
    "$anyorder" config --check "$name/bad.toml"
  expect_text "bad.toml:3: train.steps is 0.5 but must be a whole number" "$name/err"
  expect_refused 64 "train.steps is 0 but must be at least 1" \
    "$anyorder" config --check "$name/defaults.toml" --set train.steps=0
  expect_refused 64 "unknown key 'data.vocab_size'; .*prep --vocab-size N" \
    "$anyorder" config --check "$name/defaults.toml" --set data.vocab_size=9
  printf '[train]\nsteps = = 4\n' >"$name/bad.toml"
  expect_refused 64 "bad.toml:2: 'steps = = 4' is not TOML (" "$anyorder" config --check "$name/bad.toml"
  mkdir "$name/configs" && touch "$name/configs/any-tiny.toml" && cd "$name"
  expect_refused 64 "'any-tiny' does not exist; did you mean 'configs/any-tiny.toml'?" "$anyorder" config --check any-tiny ;;

bash)
  "$anyorder" completion bash >"$name/anyorder.bash" || fail "completion bash"
  bash -n "$name/anyorder.bash" || fail "syntax"
  ! command -v shellcheck >"$name/out" || shellcheck -s bash "$name/anyorder.bash" || fail "shellcheck"
  cd "$name" && touch a_file.toml "a_file of words"
  # shellcheck source=/dev/null
  source "$name/anyorder.bash"
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
  "$anyorder" completion zsh >"$name/_anyorder" || fail "completion zsh"
  expect_text "^#compdef anyorder" "$name/_anyorder"
  expect_refused 64 "" "$anyorder" completion fish
  command -v zsh >"$name/out" || { echo "no zsh: its completions are not tried"; exit 77; }
  zsh -n "$name/_anyorder" || fail "syntax"
  # A terminal's zsh: control-t completes the line as a tab does, prints it and clears it.
  cat >"$name/keys" <<-'KEYS'
	autoload -Uz compinit && compinit -u -D
	complete-and-print() { zle complete-word; print -r -- "offers<$BUFFER>"; zle kill-whole-line; }
	zle -N complete-and-print
	bindkey '^T' complete-and-print
	print 'keys are bound'
	KEYS
  cat >"$name/terminal" <<-'TERMINAL'
	zmodload zsh/zpty
	zpty shell zsh -f -i
	zpty -w shell 'fpath=($PWD $fpath); source ./keys'
	zpty -r shell out '*keys are bound*'
	while IFS= read -r line; do
	  zpty -w -n shell "$line"$'\x14'
	  zpty -r shell out '*offers<*>*'
	  print -r -- "$line: ${${out#*offers<}%%>*}"
	done
	TERMINAL
  cd "$name" && touch a_file.toml
  expected="anyorder la: anyorder launch
anyorder --v: anyorder --version
anyorder status --r: anyorder status --run-dir
anyorder launch --backend s: anyorder launch --backend slurm
anyorder launch --config a_: anyorder launch --config a_file.toml
anyorder launch --set train.st: anyorder launch --set train.steps=
anyorder launch --set dist.reduction=f: anyorder launch --set dist.reduction=fast
anyorder config --explain train.st: anyorder config --explain train.steps
anyorder completion z: anyorder completion zsh"
  sed 's/: .*//' <<<"$expected" | timeout 400 zsh -f terminal >offered || fail "zsh's terminal: $(cat offered)"
  diff <(echo "$expected") <(sed 's/ *$//' offered) || fail "the lines above were completed otherwise" ;;

man)
  "$anyorder" man "$name/man" || fail "man"
  for command in $(commands); do
    expect_text '^\.SH EXAMPLES' "$name/man/anyorder-$command.1"
  done
  expect_text '^\.SH COMMANDS' "$name/man/anyorder.1"
  if command -v groff >"$name/out"; then
    groff -man -Tutf8 -ww "$name"/man/*.1 >"$name/out" 2>"$name/err" || fail "groff"
    ! grep -v "cannot break\|can't break\|cannot adjust" "$name/err" || fail "groff warns"
  fi ;;

*) fail "there is no case '$case'" ;;
esac
