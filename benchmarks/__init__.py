"""Side-by-side ratios against real peers, measured in one run; `python -m benchmarks` or `make bench`."""
