"""Interfaces to other libraries, and their file formats."""
