"""``python -m tools gpu``: the acceptance test of the GPU code, and its measured limits."""
