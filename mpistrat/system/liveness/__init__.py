"""Find out whether other processes still run.

On this machine by pidfd, of ranks (`pidfd.py`) or of any process by its tag (`tagged_process.py`);
on others by UDP (`udp_probe.py`). Those of ranks are probes (`probe.py`). `ulfm.py` excuses MPI's
errors about ranks that have died.
"""
