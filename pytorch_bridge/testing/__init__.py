"""The harness that `tests/` and CI use: Go tests as pytest items, and what tests share."""
