"""The pipeline for batches of images in PyTorch, with Triton kernels for GPUs.

It uses the tables, samplings and constants of the CPU modules. Each Triton kernel is tested against
an implementation in PyTorch. PyTorch is imported only if a device is requested.
"""
