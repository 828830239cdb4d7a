"""Descriptors of frames and patches."""
