"""Generated pages of the documentation: templates filled with stored results."""
