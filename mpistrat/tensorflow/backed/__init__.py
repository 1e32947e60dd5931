"""Our strategy over a strategy of TensorFlow's: one rank drives it, or each has one of its own.

`strategy.py` is the class; it leaves everything to one of the ways of `local.py` (this process has
it for itself), `slices.py` (each rank has a slice, whose gradients are summed with the others'),
`pods.py` (slices that run programs nobody can look into, such as TPUs'; `over_slices.py` is what
their machinery gets) and `driving.py` (one rank has it, and the others wait).
"""
