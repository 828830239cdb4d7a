"""Scale space to frames."""
