"""Version of det-core."""

__version__ = "0.1.0"
