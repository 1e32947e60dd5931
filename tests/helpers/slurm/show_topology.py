"""Print what a rank knows of its place, one line of JSON a rank: started by tests under srun."""

from __future__ import annotations

import json
import sys

import mpistrat

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Sum the ranks' numbers, and print this rank's place and role."""
    jobs = json.loads(arguments[0]) if arguments else None
    resolver = mpistrat.cluster_resolver.SlurmClusterResolver(jobs)
    communicator = mpistrat.Communicator()
    topology = communicator.topology
    place = {
        "rank": topology.rank,
        "size": topology.size,
        "node": topology.node,
        "num_nodes": topology.num_nodes,
        "local_rank": topology.local_rank,
        "local_size": topology.local_size,
        "host": topology.hostnames[topology.rank],
        "role": resolver.get_task_info(),
        "sum": float(communicator.allreduce(topology.rank, "sum")),
        "same": resolver.topology == topology,
        "gpus": resolver.num_accelerators()["GPU"],
    }
    # In one write: lines of several ranks are not mixed.
    sys.stdout.write(json.dumps(place) + "\n")
    communicator.close()


if __name__ == "__main__":
    main(sys.argv[1:])
