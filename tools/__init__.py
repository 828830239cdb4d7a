"""Developer tools, not part of the package: benchmarks, drills, page writers."""
