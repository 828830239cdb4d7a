"""File or array to scale space."""
