"""Plugin that runs the trials of det on a Kubernetes cluster.

A config selects it by ``launcher: {type: kubernetes, resources: {nvidia.com/gpu: 1}}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
