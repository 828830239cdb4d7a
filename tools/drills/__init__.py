"""Drills: kills at random moments, broken files, and the page in a browser."""
