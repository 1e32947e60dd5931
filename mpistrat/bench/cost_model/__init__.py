"""A cost model of collectives: fitted to measured times, it projects them to other sizes.

`formulas/` counts what each algorithm does (messages, bytes, copies); `fitting/` finds what each
of these costs on a machine; `projection/` multiplies the two for numbers of ranks that nobody has
measured, and says which of the costs outgrows the others first.
"""
