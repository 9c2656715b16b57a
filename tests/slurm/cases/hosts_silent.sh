# cluster: none
# A host whose link is cut for good where mpirun's daemons notice nothing: the launcher says whom
# the ranks wait for and kills those that it reaches; the host that is cut off ends its own.
. "$here/hosts.sh"
starter oob_tcp_keepalive_time=0
train --set dist.hang_report_seconds=2 --set dist.collective_timeout_seconds=5 --set health.contact_timeout_seconds=8
machine_cut h3
expect_end_without_h3 2
expect_text "collective [0-9]* ([A-Za-z]*) has run for 2.*in phase 'step [0-9]*'; [1-3] of 4 ranks waits* in it; missing: .*rank 3 on h3 .*nothing heard for" $name/log
expect_text "killing the ranks: collective" $name/log
expect_text "h3.*nothing heard from the launcher" $run/ckptd.log
