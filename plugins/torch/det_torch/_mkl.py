"""Initialization of MKL's vector functions on import, so that the first square root of a process is reproducible.

torch calls MKL's vector functions for sqrt, exp, log and others. They initialize themselves in their first call. If
that call is long enough to be split among threads, one thread sometimes computes its part before the initialization is
complete. Some of its results then differ in the last bit. This happened at the first step of Adam in 1 to 4 of 100
processes, with torch 2.13 and MKL 2024.2 on two cores (``benchmarks/first_call.py``). No setting of MKL prevents it.
A first call on a single number is never split, so it completes the initialization safely. Without it, a resumed run
would sometimes not be bitwise equal to an uninterrupted one.
"""

from __future__ import annotations

import torch

torch.ones(1).sqrt()
