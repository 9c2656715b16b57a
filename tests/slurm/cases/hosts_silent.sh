# cluster: none
# The same where mpirun's daemons notice nothing, which is their default: the judge says whom the
# ranks wait for and ends those that it reaches; the host that is cut off ends its own.
. "$here/hosts.sh"
unset {OMPI,PRTE}_MCA_oob_tcp_keepalive_{time,intvl,probes}
health_limits="2 5 8"
train_on_three
machine_cut h3; cut=$(now_ms)
await no_ranks
echo "all ranks gone after $(($(now_ms) - cut)) ms"
expect_text "collective [0-9]* ([A-Za-z]*) has run for 2.*in phase 'step [0-9]*'; [12] of 3 ranks waits* in it; missing: rank 2 on h3 .*nothing heard for" $run/train.log
expect_text "ending the ranks: collective" $run/train.log
expect_text "nothing heard from the launcher" $run/ckptd.log
# mpirun itself waits for the lost daemon for ever, as measured here; `anyorder launch` ends it when
# the ranks are silent.
on_host head pkill -9 -x 'mpirun|prterun'
wait $job 2>/dev/null  # the shell would tell that it was killed
finish_on h1
