"""Checkpoints of PyTorch trials: training state, shards, old layouts, safe loading and staging."""
