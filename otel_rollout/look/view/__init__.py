"""The local web pages of a trace folder."""
