"""Programs that measure redrive against floors; `python -m benchmarks` runs them."""
