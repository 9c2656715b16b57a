#!/usr/bin/env bash
# Every path that a command takes, given wrongly: the status says that the user is at fault (64, or
# 65 for what is wrong inside), never the machine (74), in one line that names the path.
#
# Usage: paths.sh BIN_DIR WORK_DIR CASE
#   runs, datasets, files, outputs, steps
. "$(dirname "$0")/checks.sh"
begin "$1" "$2" "paths_$3"
run=$work/reference shards=$work/shards
chmod 777 "$name" && cd "$name" && name=. || exit 1

mkdir empty locked && touch file secret && ln -s loop loop && chmod 000 locked secret
echo words >prompts.txt && echo '{"text": "a", "label": "b"}' >examples.jsonl
# Nothing is closed to root, so then somebody else asks, if the programs are open to others.
user=()
[ "$(id -u)" -ne 0 ] || user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
closed=(locked secret)
"${user[@]}" "$anyorder" --version >out 2>&1 && ! "${user[@]}" cat secret 2>err || { user=() closed=(); }

# refuses PATH WORD...: that command line, in which @ is PATH.
refuses() {
  local path=$1 status; shift
  "${user[@]}" timeout 400 "$anyorder" "${@//@/$path}" </dev/null >out 2>err
  status=$?
  [ $status -eq 64 ] || [ $status -eq 65 ] || fail "exit status $status of: anyorder ${*//@/$path}"
  [ "$(wc -l <err)" -eq 1 ] || fail "not one line of: anyorder ${*//@/$path}"
  grep -q -- "$(basename "${path%%/*}")" err || fail "'$path' is not named by: anyorder ${*//@/$path}"
}
# all KINDS: each command line of standard input with each of these paths.
all() {
  local line words path
  while read -r line; do
    read -ra words <<<"$line"
    for path in $1; do refuses "$path" "${words[@]}"; done
  done
}

case $3 in
runs)
  all "nowhere file loop file/x empty ${closed[*]} $shards" <<END
status @
report @
export @ --output new
eval @ --data $shards
generate @ --input prompts.txt --output new
likelihood @ --input prompts.txt
serve @ --stdio
chat @
fill @ --input prompts.txt --output new
embed @ --input prompts.txt --output new
rank @ --collection prompts.txt --topics prompts.txt --run prompts.txt --qrels prompts.txt --output new
predict @ --text x
launch @
submit @ --dry-run
show @
tune @
import --format run --input @ --output new
import --input @ --output new
END
  all "nowhere file file/x empty" <<<"inspect @" ;;

datasets)
  all "nowhere file loop file/x empty ${closed[*]} $run" <<END
eval $run --data @
inspect $run --ledger --data @
launch new --config $here/tiny.toml --set data.shards=@
launch new --config $here/tiny.toml --set data.shards=$shards --set eval.every=1 --set eval.shards=@
prep --examples examples.jsonl --vocab $shards/spiece.model --labels-from @ --output new
END
  ;;

files)
  all "nowhere loop file/x empty ${closed[*]}" <<END
generate $run --input @ --output new
likelihood $run --input @
serve $run --http --token-file @
serve $run --stdio --vocab @
chat $run --vocab @
show --trace @
generate $run --input prompts.txt --vocab @ --output new
embed $run --input @ --output new
rank $run --collection @ --topics prompts.txt --run prompts.txt --qrels prompts.txt --output new
rank $run --collection prompts.txt --topics @ --run prompts.txt --qrels prompts.txt --output new
rank $run --collection prompts.txt --topics prompts.txt --run @ --qrels prompts.txt --output new
rank $run --collection prompts.txt --topics prompts.txt --run prompts.txt --qrels @ --output new
rank $run --collection prompts.txt --topics prompts.txt --run prompts.txt --ranker @ --output new
launch new --config @
submit new --config @ --dry-run
doctor --local --environment @
submit new --config $here/tiny.toml --environment @ --dry-run
import --format run --input $run --config @ --output new
show --config @
show --mask @
config --check @
tune --table @
prep --input prompts.txt --vocab @ --output new
score --gold @ --predictions examples.jsonl
score --task sst2 --gold @ --predictions examples.jsonl
score --task squad2 --gold @ --predictions examples.jsonl
score --task trec --gold @ --predictions examples.jsonl
score --gold examples.jsonl --predictions @
END
  all "-" <<END
launch new --config @
config --check @
END
  all "nowhere loop file/x file empty ${closed[*]}" <<END
prep --input @ --output new
prep --examples @ --vocab $shards/spiece.model --output new
END
  ;;

outputs)
  places="file/x"
  [ "${#closed[@]}" -eq 0 ] || places="file/x locked/x"
  all "$places nowhere/x" <<END
generate $run --input prompts.txt --output @
embed $run --input prompts.txt --output @
rank $run --collection prompts.txt --topics prompts.txt --run prompts.txt --qrels prompts.txt --output @
rank $run --collection prompts.txt --topics prompts.txt --run prompts.txt --qrels prompts.txt --save @
predict $run --text x --output @
report $run --output @
show --output @.svg
END
  all "$places" <<END
export $run --output @
predict $run --task sst2 --data examples.jsonl --write-submission @
score --task sst2 --gold examples.jsonl --predictions examples.jsonl --write-submission @
import --format run --input $run --output @
prep --input prompts.txt --output @
launch @ --config $here/tiny.toml --set data.shards=$shards
submit @ --config $here/tiny.toml --set data.shards=$shards --dry-run
END
  # A new directory in its place would leave the shell in the old one.
  cd empty && expect_refused_in_a_line 64 "'.' is the current directory; name another" "$anyorder" export "$run" --output . ;;

steps)
  # A step that no checkpoint has, and a run whose dataset is gone.
  all step-000000007 <<END
export $run --step 7 --output new
eval $run --data $shards --step 7
generate $run --input prompts.txt --output new --step 7
embed $run --input prompts.txt --output new --step 7
END
  cp -r "$run" moved && chmod -R a+rwX moved
  sed -i "s|^shards = .*|shards = \"$PWD/gone\"|" moved/config.toml
  all gone <<END
generate moved --input prompts.txt --output new
launch moved
END
  ;;

*) fail "no case '$3'" ;;
esac
[ ! -e new ] || fail "a refused command left something"
