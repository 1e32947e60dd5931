"""`TFBackedStrategy`: a strategy of TensorFlow's, wrapped so that several ranks use it.

`strategy.py` is the class that users call. It leaves each call to one object, a
`WrappedStrategy`: the one of `base.py` if there is one process; of `mirrored_slice.py` if each
rank drives a MirroredStrategy; of `tpu_slice.py` if each has a TPU; or, if one rank drives for
all, one of the two in `one_driver/roles.py`.
"""
