# Shell functions of cases in which small networks learn, most of them eight sentences by heart; for
# `source` after checks.sh.
configs=$here/../../configs
# train CONFIG RUN [key=value...]: a small network of that configuration learns shards/.
train() {
  local config=$1 run=$2 key; shift 2
  local command=("$anyorder" launch --config "$configs/$config" --run-dir "$run" --ranks 1)
  for key in data.shards="$PWD/shards" model.num_layers=2 model.model_dim=64 model.num_heads=2 model.head_dim=32 model.ffn_dim=128 \
    sampling.seq_len=64 train.global_batch_size=8 train.micro_batch_size=8 train.device=auto optimizer.learning_rate=3e-3 optimizer.warmup_steps=10 checkpoint.every=1000 "$@"; do
    command+=(--set "$key")
  done
  succeeds "${command[@]}"
}
# Sentences, and a dataset of them: in an order that is always the same, a document each; with it
# prompts.txt, four words of each.
sentences() {
  cat <<'END'
the quick brown fox jumps over the lazy dog near the river
a slow green turtle walks along the sandy beach at noon
seven small birds sing in the old tree behind our house
my tall brother plays the guitar every evening after supper
cold winter wind blows through empty streets until the morning
fresh bread smells better than anything else in this shop
nobody knows where the black cat sleeps during long storms
young sailors learn to read the stars before they leave
END
}
dataset() {
  sentences | awk '{ line[NR] = $0 } END { state = 1; for (i = 0; i < 1600; ++i) { state = (state * 1103515245 + 12345) % 2147483648; print line[1 + int(state / 65536) % NR] "\n" } }' >text.txt
  prep --input text.txt --output shards --vocab-size 120
  sentences | cut -d' ' -f1-4 >prompts.txt
}
