"""Writers of documentation pages, from the results of benchmarks."""
