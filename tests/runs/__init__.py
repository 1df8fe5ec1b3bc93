"""Runs with a known truth, for measuring `diagnose`: made from its documentation, not from its checks."""
