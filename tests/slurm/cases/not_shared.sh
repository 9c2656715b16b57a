# cluster: ANYORDER_SLURM_NODES=2 ANYORDER_SLURM_GPUS=0
# A run directory that each node has for itself is called that, before a service or a rank starts.
needs_machines  # each has a /tmp of its own
cat >$name/script <<END
#!/bin/bash
"$anyorder" launch --backend slurm --config "$config" --run-dir /tmp/run --set data.shards="$work/shards"
echo "launch ended with \$?"
[ -z "\$(ls /tmp/run/.launch/shared-* 2>/dev/null)" ] && echo "no mark is left"
ls -A /tmp/run /tmp/run/checkpoints
END
shown+=("$work/$name/log")
job=$(submit -N2 --ntasks-per-node=1 --output="$work/$name/log" "$name/script") || fail "sbatch"
await grep -q "launch ended" $name/log
expect_text "launch ended with 64" $name/log
expect_text "run directory '/tmp/run' is not the same on node n2 (stat .*); put it on a file system that all nodes share" $name/log
await grep -q "no mark is left" $name/log
