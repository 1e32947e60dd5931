"""A strategy over one of TensorFlow's: driven by one rank, or by each rank for itself.

`strategy.py` is the class; it leaves everything to one of the ways of `local_only.py` (this
process has it for itself), `slices.py` (each rank has a slice, whose gradients are summed with the
others'), `tpu_slices.py` (slices that run programs nobody can look into, such as TPUs';
`slices_extended.py` is what their machinery gets) and `one_driver/driving.py` (one rank has it,
and the others wait).
"""
