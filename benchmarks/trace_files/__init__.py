"""The trace folder beside what one would keep traces in by hand: plain OTLP JSON lines, Parquet with DuckDB, SQLite."""
