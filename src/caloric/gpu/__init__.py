"""What a device does differently: the pipeline on batches of images in PyTorch, and nothing more.

The tables, samplings and constants are those of the rooms below; a kernel in Triton stands beside
the plain form it is tested against. Nothing here is imported unless a device is asked for.
"""
