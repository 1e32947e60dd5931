"""The main job: ``mpirun -n 2 python -m mpistrat.demo``, and the example of the README."""
