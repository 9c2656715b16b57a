# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# A node loses power while its job may go on without it: the launcher starts again on the nodes
# left, with fewer ranks.
. "$here/life.sh"
train run -N3 --ntasks-per-node=1 --no-kill --
cluster crash n2
expect_finished
expect_text "launch ended with 0" $name/log
expect_starts 2 2 '["n1","n3"]'
