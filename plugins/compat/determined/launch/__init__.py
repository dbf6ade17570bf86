"""Programs for entrypoints: ``python3 -m determined.launch.BACKEND``, over `det_core.launch`."""
