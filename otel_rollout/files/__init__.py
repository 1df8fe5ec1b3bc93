"""Files: modes, locks."""
