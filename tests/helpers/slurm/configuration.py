"""Write the configuration files of a Slurm whose nodes are all on this machine."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

__all__ = ["CORES_PER_NODE", "GPUS_PER_NODE", "NODES", "write_configuration"]

NODES = ("n0", "n1", "n2", "n3")
CORES_PER_NODE = 8
_GPUS = ("/dev/full", "/dev/null", "/dev/random", "/dev/zero")
GPUS_PER_NODE = len(_GPUS)
_MOST_JOBS = 60_000_000  # Slurm counts up to 67 million

# Why some of the values are as they are:
# - config_overrides: nodes have the cores that are written here, more than the machine has.
# - TaskPlugin=task/none and ProctrackType=proctrack/linuxproc need no cgroups.
# - cred_expire: a job that is requeued waits for so long before it starts again, 120 s by default.
# - FirstJobId: MPICH names memory of a job after its number, which another Slurm on this machine,
#   or an earlier one whose jobs were killed, must not have used.
# - KillWait, GraceTime: short, so that tests of the end of a job are.
# - KillOnBadExit, JobRequeue and MpiDefault are Slurm's defaults, written here since tests count
#   on them.
_CONFIGURATION = """\
ClusterName=mpistrat-tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
FirstJobId={first_job}
SlurmdParameters=config_overrides
KillOnBadExit=0
JobRequeue=1
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=30
PropagateResourceLimits=NONE
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5
PartitionName=high Nodes={names} MaxTime=INFINITE State=UP PriorityTier=10
"""

_NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} Sockets=1"
    " CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=4000 Gres=gpu:{gpus} Feature=gpu,cpu"
    " State=UNKNOWN"
)


def write_configuration(folder: Path, controller_port: int, node_ports: Sequence[int]) -> Path:
    """Write slurm.conf and gres.conf, and make the folders that they name.

    Parameters
    ----------
    folder
        For all that the daemons write.
    controller_port, node_ports
        Free ports of this machine: of slurmctld, and of the slurmd of each of `NODES`.

    Returns
    -------
    Path
        slurm.conf, for the variable SLURM_CONF.
    """
    for name in ("state", *(f"{kind}.{node}" for kind in ("spool", "tmp") for node in NODES)):
        (folder / name).mkdir()
    path, host = folder / "slurm.conf", socket.gethostname().partition(".")[0]
    nodes = "\n".join(
        _NODE.format(name=name, host=host, port=port, cores=CORES_PER_NODE, gpus=GPUS_PER_NODE)
        for name, port in zip(NODES, node_ports, strict=True)
    )
    text = _CONFIGURATION.format(
        folder=folder,
        host=host,
        controller_port=controller_port,
        nodes=nodes,
        names=",".join(NODES),
        first_job=secrets.randbelow(_MOST_JOBS) + 1,
    )
    path.write_text(text)
    _write_gpus(folder)
    return path


def _write_gpus(folder: Path) -> None:
    """Give each node GPUs that only Slurm knows of: it wants character devices, of any kind."""
    lines = [f"NodeName={','.join(NODES)} Name=gpu File={device}\n" for device in _GPUS]
    (folder / "gres.conf").write_text("".join(lines))
