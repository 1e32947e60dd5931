"""Build the parts that need a compiler; everything else is in pyproject.toml.

The C++ kernels (kernels/) will be added here as extension modules. Until then there is nothing
to compile.
"""

from setuptools import setup

setup()
