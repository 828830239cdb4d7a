"""Threads, memory, files, and the compiled core."""
