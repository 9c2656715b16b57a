# cluster: none
# The dataset of the other cases, and the run that nobody disturbs: they must end in its state.
cd "$work" && rm -rf shards reference reference.digest
python3 "$here/../launcher/make_text.py" 1 >$name/corpus.txt
shown=($name/log)
prep --input $name/corpus.txt --output shards --vocab-size 300
succeeds "$anyorder" launch --config "$config" --run-dir "$work/reference" \
  --set data.shards="$work/shards"
digest reference >reference.digest && [ -s reference.digest ] || fail "it has no digest"
