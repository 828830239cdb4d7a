"""Interfaces and file formats of other libraries."""
