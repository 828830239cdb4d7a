"""Robustness tests: kills at random moments, damaged files, and the page in a browser."""
