"""Keep TensorFlow's own ``tf.distribute`` for programs that assign this package to that name.

After ``tf.distribute = mpistrat.tensorflow`` a name such as ``tf.distribute.MirroredStrategy`` is
this package's class. Code that means TensorFlow's takes it from here.
"""

from __future__ import annotations

import tensorflow as tf

__all__ = ["distribute"]

distribute = tf.distribute
