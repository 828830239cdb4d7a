"""Drills: kills at random moments, broken files, the page in a browser."""
