"""Launchers, a pytest plugin and conformance classes, for authors of backends and strategies.

=========== ====================================================================================
module      holds
=========== ====================================================================================
launcher    ``run_job``: a program under mpirun with a deadline, and every rank's output
job, worker a job that stays up and runs test bodies that pytest hands over
launching   what ``launcher`` and ``job`` do it with: mpirun, one job, its processes
tasks       how test bodies get to the ranks of a job, and their outcomes back
plugin      the pytest plugin: ``@pytest.mark.mpi(ranks=2)``, the ``layout`` parameter, deadlines
threads     ``run_ranks``: ranks as threads of this process
backends    the conformance class for backends of collectives
strategies  the conformance classes for strategies
sets        ``takes_long``, ``repeats``: tests that run only if the environment asks for them
layouts     the layouts (ranks × local devices) that contract tests run on
=========== ====================================================================================

Nothing is imported here, so that no test pays for what it does not use.
"""
