"""The paper regenerated: figures, tables and errata (``caloric paper OUT``). Needs matplotlib."""
