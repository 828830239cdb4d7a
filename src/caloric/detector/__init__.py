"""Detection of frames in a scale space."""
