"""Output of the commands: tables, JSON, plots and live displays."""
