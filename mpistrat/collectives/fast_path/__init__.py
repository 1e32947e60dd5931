"""Python's part of the fast path: calls of plain arrays, or lists of them, begun by native code.

``decorator.py`` puts native code before a method, which then asks ``begun_call.py`` about each new
kind of call; what does not end soon, or not well, goes to ``communicator_methods.py``.
"""
