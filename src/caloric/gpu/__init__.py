"""The pipeline on batches of images in PyTorch, with Triton kernels for GPUs.

Tables, samplings and constants are those of the CPU modules. Each Triton kernel has a plain PyTorch
form that it is tested against. PyTorch is imported only if a device is requested.
"""
