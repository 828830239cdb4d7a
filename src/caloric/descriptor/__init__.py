"""Frames to descriptors."""
