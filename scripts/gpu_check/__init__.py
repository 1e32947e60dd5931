"""The parts of ``scripts/gpu-check``: what is there, the steps, their outcomes, the file."""
