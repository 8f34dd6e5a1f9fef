#!/bin/sh
# A real Slurm on one machine for tests: a controller and several nodes on loopback, each with two GPUs that are none, as
# root, without systemd, cgroups or a database. Everything lies in one folder, whose name must be short: Unix sockets lie in
# it.
#   cluster.sh start DIR PORT N    nodes n1 to nN, on PORT and those after it; then SLURM_CONF=DIR/slurm.conf
#   cluster.sh stop DIR
set -eu

conf() {
  cat <<CONF
ClusterName=kmark
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$2
SlurmUser=root
AuthType=auth/munge
# It is also how long a requeued job waits.
AuthInfo=socket=$1/munge.socket,cred_expire=15
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool-%n
SlurmctldPidFile=$1/slurmctld.own
SlurmdPidFile=$1/slurmd-%n.own
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
ReturnToService=2
MessageTimeout=30
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
GresTypes=gpu
NodeName=n[1-$3] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$(($2 + 1))-$(($2 + $3))] CPUs=2 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=main Nodes=ALL Default=YES DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=10
CONF
}

# Starts a daemon in a session of its own and keeps its number.
daemon() {
  name=$1
  shift
  setsid "$@" </dev/null >"$dir/$name.log" 2>&1 &
  echo $! >"$dir/$name.pid"
}

# Waits two minutes at the most.
until_true() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 2400 ] || { echo "cluster.sh: no '$*' after two minutes" >&2; tail -n 3 "$dir"/*.log >&2; return 1; }
    sleep 0.05
  done
}

munge_answers() { munge -S "$dir/munge.socket" -n; }
controller_answers() { scontrol ping | grep -q 'is UP'; }
gone() { ! kill -0 "$1"; }
nodes_answer() { [ "$(sinfo -hN -p main -o '%N %T' | grep -c ' idle$')" = "$nodes" ]; }

case ${1:-} in
  start)
    dir=$2 nodes=$4
    export SLURM_CONF="$dir/slurm.conf"
    mkdir -p "$dir/state"
    chmod 755 "$dir"
    conf "$dir" "$3" "$nodes" >"$SLURM_CONF"
    ln -sf /dev/null "$dir/gpu0" # Slurm wants devices; files would be handed out, but tasks not told of them
    ln -sf /dev/null "$dir/gpu1"
    echo "NodeName=n[1-$nodes] Name=gpu File=$dir/gpu[0-1]" >"$dir/gres.conf"
    mungekey -c -k "$dir/munge.key"
    daemon munged munged -F --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
      --log-file="$dir/munged.own.log" --pid-file="$dir/munged.own" --seed-file="$dir/munged.seed"
    until_true munge_answers
    daemon slurmctld slurmctld -D -f "$SLURM_CONF"
    until_true controller_answers
    for n in $(seq 1 "$nodes"); do
      mkdir -p "$dir/spool-n$n"
      daemon "slurmd-n$n" slurmd -D -N "n$n" -f "$SLURM_CONF"
    done
    until_true nodes_answer
    ;;
  stop)
    dir=$2
    export SLURM_CONF="$dir/slurm.conf"
    squeue -h -o %A | sort -u | xargs -r scancel || :
    until_true sh -c '[ -z "$(squeue -h)" ]' || :
    for file in "$dir"/slurmd-*.pid "$dir/slurmctld.pid" "$dir/munged.pid"; do
      kill "$(cat "$file")" 2>/dev/null || :
    done
    for file in "$dir"/*.pid; do
      until_true gone "$(cat "$file")" || : # they write until then
    done
    ;;
  *)
    echo "usage: cluster.sh start DIR PORT NODES | stop DIR" >&2
    exit 2
    ;;
esac
