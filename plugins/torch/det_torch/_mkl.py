"""Makes the first square root of a process as exact as all others.

MKL's vector functions (torch calls them for sqrt, exp, log ...) set themselves up in their first call. If that call
is long enough to be shared by threads, now and then one thread computes its part before the set-up is done, and some
of its results differ in the last bit: seen in 1 to 4 of 100 processes at the first step of Adam, with torch 2.13 and
MKL 2024.2 on two cores (``benchmarks/first_call.py``). No setting of MKL prevents it. A call on one number, which is
never shared, leaves nothing to set up. Without this, a resumed run would sometimes not be bitwise the same.
"""

from __future__ import annotations

import torch

torch.ones(1).sqrt()
