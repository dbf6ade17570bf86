"""Plugin that records experiments in MLflow.

A config selects it by ``observers: {mlflow: {tracking_uri: http://HOST:5000}}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
