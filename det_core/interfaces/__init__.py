"""Interfaces that plugins implement: Protocols and small abstract classes, one module per kind of plugin."""
