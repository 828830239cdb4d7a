"""Reading and converting images, and their scale spaces."""
