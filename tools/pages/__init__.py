"""Pages of the documentation: templates, with tables of the stored results inserted."""
