"""What a plugin implements: Protocols and small abstract classes, one module per kind of plugin."""
