"""Programs of old entrypoints, such as ``python3 -m determined.launch.torch_distributed``."""
