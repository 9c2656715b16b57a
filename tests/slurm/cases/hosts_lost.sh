# cluster: none
# A host whose link is cut for good: mpirun's daemons notice it, all ranks end on both sides, and
# the run goes on on what is left.
. "$here/hosts.sh"
train
machine_cut h3
expect_end_without_h3 2
! grep "killing the ranks" $name/log || fail "not mpirun ended the start"
