"""The command ``mpistrat horovod``: build Horovod for this Python, TensorFlow and MPI library.

PyPI has Horovod as sources only. ``requirements/`` looks for what they need, ``recipe.py`` says
how they are compiled with a TensorFlow that is newer than they are, ``wheel_cache.py`` keeps the
result, and ``two_ranks.py`` is the program that tests it.
"""
