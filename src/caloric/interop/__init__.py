"""Faces that users of other libraries know, over the same functions."""
