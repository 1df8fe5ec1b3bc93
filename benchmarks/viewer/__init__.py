"""The load and the measurements of `python -m benchmarks.view`."""
