# cluster: ANYORDER_SLURM_NODES=3 ANYORDER_SLURM_GPUS=2
# `anyorder doctor` finds nothing wrong with a healthy cluster, and each fault that is planted in
# it; it leaves what the nodes have, nothing else.
needs_machines
command -v python3 >/dev/null || skip "python3 is not installed"
doctor=("$bin/anyorder" doctor)
run=$work/$name/shared/run
mkdir $name/shared $name/empty
shown=($name/err)

# examine STATUS OPTIONS...: runs it on the head, in the environment that `settings` adds; findings
# gets lines "LEVEL check seen".
examine() {
  local expected=$1 status; shift
  x env "${settings[@]}" "${doctor[@]}" --run-dir "$run" --json "$@" >$name/out 2>$name/err
  status=$?
  python3 -c 'import json,sys
for entry in json.load(sys.stdin)["findings"]: print(entry["level"], entry["check"], entry["seen"], sep="  ")' <$name/out >$name/findings
  expect_status $status $expected "doctor $*: $(grep '^FAIL' $name/findings)"
}
expect_finding() { grep -q -- "$1" $name/findings || fail "no finding '$1': $(grep -v '^PASS' $name/findings)"; }
shim() { mkdir -p $name/$1; cat >$name/$1/$2; chmod +x $name/$1/$2; }

printf '#!/bin/sh\necho "81559, pretended"; echo "40960, pretended"\n' | shim two nvidia-smi
printf '#!/bin/sh\necho "81559, pretended"\n' | shim one nvidia-smi

# A bridge of containers has the same address everywhere; ranks would wait for each other there for
# ever.
for node in n1 n2 n3; do
  cluster nx $node sh -c 'ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up' || fail "bridge"
done
settings=(PATH="$work/$name/two:$PATH")
examine 0 --nodes 3 --ranks-per-node 2 --gpus-per-node 2
expect_finding '^PASS  MPI start  6 starts of 6 ranks'
expect_finding '^PASS  shared directory'
expect_finding '^PASS  signals'
expect_finding '^PASS  GPUs  2 on every node'
# The cluster is told to kill soon.
rest=$(grep -v '^PASS\|^WARN  time to stop' $name/findings); [ -z "$rest" ] || fail "healthy, but: $rest"
[ "$(cd "$run" && find . -type f)" = ./.launch/nodes.json ] || fail "left behind: $(find "$run")"
for node in n1 n2 n3; do expect_text "\"$node\"" "$run/.launch/nodes.json"; done
expect_text "\"gpu_bytes\": $((40960 << 20))" "$run/.launch/nodes.json"; expect_text "\"host_bytes\": [1-9]" "$run/.launch/nodes.json"

# Faults: n3 does not mount the run directory; on n2 Python sees a clock that is ahead and the file
# system of a bad mount: a directory cache, no O_EXCL, no locks.
mkdir -p "$run"
cluster nx n3 mount --bind "$work/$name/empty" "$work/$name/shared" || fail "mount"
cat >$name/empty/sitecustomize.py <<'END'
import builtins, fcntl, os, time
if os.environ.get("SLURMD_NODENAME") == "n2":
    real_time, real_open, real_os_open, seen = time.time, builtins.open, os.open, {}
    def late_open(path, *arguments, **options):
        file = real_open(path, *arguments, **options)
        if "/step/" in str(path) and real_time() - seen.setdefault("step", real_time()) < 3:
            raise FileNotFoundError(path)
        return file
    def open_anyhow(path, flags, *arguments, **options):
        if "/only." in str(path):
            time.sleep(0.3 if str(path).endswith(".0") else 0)
            flags &= ~os.O_EXCL
        return real_os_open(path, flags, *arguments, **options)
    time.time, builtins.open, os.open, fcntl.flock = lambda: real_time() + 120, late_open, open_anyhow, lambda *_: None
END
sed -i s/JobRequeue=1/JobRequeue=0/ "$ANYORDER_SLURM_LAB/slurm.conf" && x scontrol reconfigure || fail "reconfigure"
settings=(PATH="$work/$name/one:$PATH" PYTHONPATH="$work/$name/empty")
examine 65 --nodes 3 --gpus-per-node 2
expect_finding "^FAIL  shared directory  n3: '$run' does not exist"
expect_finding '^FAIL  clocks  n2 is ahead of n[13] by at least 120 s'
expect_finding '^FAIL  GPUs  n1, n2, n3: nvidia-smi lists 1'
expect_finding '^WARN  requeue  JobRequeue=0'
expect_finding '^WARN  rename  seen by all nodes after at most [2-4]'
expect_finding '^FAIL  exclusive create  40 of 40 names were created by 2 nodes'
expect_finding '^WARN  lock (flock)  n2 got a lock that another node holds'
[ "$(ls -A "$run")" = .launch ] || fail "left behind: $(ls -A "$run")"
cluster nx n3 umount "$work/$name/shared" || fail "umount"

# The batch host itself cannot write its log: the other nodes are asked by srun.
settings=(LC_ALL=C)
cluster nx n1 mount --bind "$work/$name/empty" "$work/$name/shared" || fail "mount"
examine 65 --nodes 1
expect_finding "^FAIL  shared directory  n1: '$run' is not there"
cluster nx n1 umount "$work/$name/shared" || fail "umount"

# srun without PMIx: mpirun is taken, and works. A mpirun of another MPI: worlds of one.
printf '#!/bin/sh\n[ "$*" = --mpi=list ] && echo "MPI plugin types are... none pmi2" && exit\nexec %s "$@"\n' "$(command -v srun)" | shim no_pmix srun
settings=(PATH="$work/$name/no_pmix:$PATH")
examine 0 --nodes 1 --ranks-per-node 2
expect_finding '^WARN  MPI flavour  mpirun, because srun has no PMIx (it has: none, pmi2)'
expect_finding '^PASS  MPI start  2 starts of 2 ranks'
printf '#!/bin/bash\n[ "$1" = --version ] && exec %s "$@"\nn=$2; while [ "$1" != --oversubscribe ]; do shift; done; shift
for i in $(seq $n); do (unset ${!SLURM*} ${!PMIX*}; exec "$@") & done; wait\n' "$(command -v mpirun)" | shim alone mpirun
settings=(PATH="$work/$name/alone:$PATH")
examine 65 --nodes 1 --ranks-per-node 2 --mpi mpirun
expect_finding '^FAIL  MPI start  start 1 of 2: 2 promised, but each rank is alone'

# In an allocation that is there already; and stopped while its job runs: the job is cancelled,
# nothing stays.
settings=(salloc --quiet --nodes=2 --ntasks=2)
examine 0 --nodes 2
expect_finding '^PASS  MPI start  2 starts of 2 ranks'
# stopped_by SIGNAL REACHED COMMAND...: runs the doctor's COMMAND, sends the signal once REACHED
# succeeds, and expects it to cancel its job and to leave nothing.
# Whoever started this script may ignore SIGINT or SIGHUP, which commands would inherit.
stopped_by() {
  local job
  x env --default-signal "${@:3}" --run-dir "$run" --nodes 3 >$name/out 2>$name/err & job=$!
  await $2
  x pkill -$1 -o -f '/slurm/doctor\.py' || fail "no doctor runs"
  wait $job; expect_status $? 74 "stopped by $1"
  expect_text "its job was cancelled" $name/err
  [ "$(ls -A "$run")" = .launch ] || fail "left behind by $1: $(ls -A "$run")"
  [ -z "$(x squeue -h -t pending,running)" ] || fail "its job goes on after $1: $(x squeue)"
}
for signal in INT TERM HUP; do
  : >$name/err
  stopped_by $signal "grep -q job.[0-9]*.runs.on $name/err" "${doctor[@]}"
done
# While sbatch works, the job being in the queue and doctor not knowing its number.
printf '#!/bin/sh\n[ "$1" = --version ] && exec %s "$@"\nnumber=$(%s "$@"); touch %s; sleep 4; echo $number\n' \
  "$(command -v sbatch)" "$(command -v sbatch)" "$work/$name/submitted" | shim slow sbatch
stopped_by TERM "test -e $name/submitted" env PATH="$work/$name/slow:$PATH" "${doctor[@]}"

# Jobs that waiting does not start: not waited for.
settings=(LC_ALL=C)
case $(x sinfo --version) in
  *' 2'[0-3].*) examine 65 --nodes 9; expect_finding '^FAIL  queue  job [0-9]*: PartitionNodeLimit'; expect_text "can never start" $name/err ;;
  *) examine 74 --nodes 9; expect_text "sbatch refuses the job: .*node configuration is not available" $name/err ;;  # not queued
esac
expect_finding '^FAIL  partition  low: TotalNodes=3, you ask for 9'
x scontrol update partitionname=low MaxTime=10 || fail "update"
examine 65 --nodes 1; expect_finding '^FAIL  queue  job [0-9]*: PartitionTimeLimit'
x scontrol update partitionname=low MaxTime=INFINITE || fail "update"
[ -z "$(x squeue -h)" ] || fail "its job stays in the queue: $(x squeue)"

# A queue that is too long, an option that Slurm refuses, no Slurm at all; one machine alone.
settings=(LC_ALL=C)
x scontrol update nodename=n1,n2,n3 state=drain reason=test || fail "drain"
examine 74 --wait 1 --nodes 2; expect_text "still waits after 1 s" $name/err
[ -z "$(x squeue -h)" ] || fail "its job stays in the queue: $(x squeue)"
examine 74 --nodes 1 --account nobody -- --constraint=none; expect_text "sbatch refuses the job: .*Invalid feature" $name/err
mkdir $name/bare && ln -s "$(command -v env)" $name/bare/ && ln -s "$(python3 -c "import sys; print(sys.executable)")" $name/bare/python3
settings=(PATH="$work/$name/bare")
examine 74; expect_finding '^FAIL  Slurm tools  not on PATH: sbatch, srun, scontrol'
x "${doctor[@]}" --nodes 2 >$name/out 2>$name/err; expect_status $? 64 "without --run-dir"
x "${doctor[@]}" --run-dir "$run" --nodes 0 >$name/out 2>$name/err; expect_status $? 64 "--nodes 0"
settings=(LC_ALL=C)
examine 0 --local --ranks-per-node 2
expect_finding '^PASS  MPI start  2 starts of 2 ranks'
expect_finding '^PASS  shared directory'
