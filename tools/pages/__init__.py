"""Writers of documentation pages, from the figures of benchmarks."""
