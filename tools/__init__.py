"""Programs for the developers of Caloric: benchmarks, drills, page writers. Not shipped."""
