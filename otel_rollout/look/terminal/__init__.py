"""Trees and tables on a terminal, for the commands and the demo."""
