"""The demo ``python -m mpistrat.demo``, and the example programs of the README."""
