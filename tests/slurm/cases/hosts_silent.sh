# cluster: none
# The same where mpirun's daemons notice nothing, which is their default: the ranks on both sides
# do, say whom they wait for, and end.
. "$here/hosts.sh"
unset OMPI_MCA_oob_tcp_keepalive_time OMPI_MCA_oob_tcp_keepalive_intvl OMPI_MCA_oob_tcp_keepalive_probes
train_on_three hang_report_seconds=2 collective_timeout_seconds=5
machine_cut h3; cut=$(now_ms)
await 60 no_ranks
echo "all ranks gone after $(($(now_ms) - cut)) ms"
expect_text "rank [01] on h[12]: collective [0-9]* ([A-Za-z]*) has run for 2.*in phase 'step [0-9]*'" $run/train.log
expect_text "giving up" $run/train.log
# mpirun itself waits for the lost daemon for ever, as measured here; `anyorder launch` ends it when
# the ranks are silent.
on_host head pkill -9 -x mpirun
wait $job 2>/dev/null  # the shell would tell that it was killed
finish_on h1
