"""The command ``mpistrat doctor``: checks of a job, its launcher, its nodes and its site's file.

``check.py`` says what a check is, ``checks/`` has a file for each, ``runner.py`` runs them.
"""
