"""Benchmarks over local copies of public data sets (``caloric bench``)."""
