"""TPUs, which TensorFlow drives: `strategy.py` is `mpistrat.TPUStrategy`.

`connect.py` finds, connects and initializes a TPU, each within a deadline; `assignment.py` says
which cores make up a replica; `preemption.py` hears when a machine is about to be taken away.
"""
