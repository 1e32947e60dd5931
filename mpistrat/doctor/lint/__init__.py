"""``mpistrat doctor --lint``: find what Horovod does wrong under Keras 3 in a program, unrun.

``program.py`` reads a program, ``rules/`` has a file for each trap, ``report.py`` writes the
findings.
"""
