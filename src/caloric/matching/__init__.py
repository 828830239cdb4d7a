"""Descriptors to matches, matches to geometry."""
