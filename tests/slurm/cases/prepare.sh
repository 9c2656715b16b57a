# cluster: none
# The dataset of the other cases, and the run that nobody disturbs: they must end in its state.
cd "$work" && rm -rf shards reference reference.digest
python3 "$here/../launcher/make_text.py" 1 >$name/corpus.txt
"$anyorder" prep --input $name/corpus.txt --output shards --vocab-size 300 --no-filter --no-dedup >$name/log 2>&1 || fail "prep: $(cat $name/log)"
"$anyorder" launch --config "$config" --run-dir "$work/reference" --set data.shards="$work/shards" >$name/log 2>&1 || fail "the undisturbed run: $(tail -n 3 $name/log)"
digest reference >reference.digest && [ -s reference.digest ] || fail "it has no digest"
