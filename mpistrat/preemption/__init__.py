"""Save and end in order when a batch system is about to end the job.

A signal sets a flag (signals.py). At each step the ranks tell each other, without waiting, whether
one of them has it (stop_agreement.py); then all save after the same step, if the time that is left
is enough (time_left.py, save_time.py), and end. A thread ends a process that does not come so far
(watch.py). What the job's script is to do then is left in a file (outcome.py). All of it is put
together in handler.py.
"""
