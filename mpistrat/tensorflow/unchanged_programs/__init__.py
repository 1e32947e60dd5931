"""Exchange the classes of ``tf.distribute`` for this package's in programs that know only those.

`stand_in_modules.install` puts modules of its own in the place of ``tf.distribute`` and its
submodules; `exchanged_names` lists what they exchange. ``mpistrat run`` uses it.
"""
