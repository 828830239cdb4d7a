"""From files and arrays to scale spaces."""
