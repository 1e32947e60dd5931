"""Run a Python program on ranks: ``on_ranks.py RANKS TIMEOUT_S ARGUMENT...`` (after ``python``).

As the tests start theirs: as root, with more ranks than cores, by any MPI's mpirun.
"""

import sys

from mpistrat.testing.launcher import run_job


def main() -> int:
    """Run it; print all output; return mpirun's exit status, or 1 if the time was over."""
    ranks, timeout_s, *argv = sys.argv[1:]
    result = run_job(argv, int(ranks), timeout_s=float(timeout_s))
    print(result.output)
    if result.timed_out:
        print(f"no end after {timeout_s} s")
    return 1 if result.timed_out else result.returncode


if __name__ == "__main__":
    sys.exit(main())
