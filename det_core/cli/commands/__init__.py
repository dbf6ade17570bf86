"""Commands of ``det``, one module each, and the helpers that only they use."""
