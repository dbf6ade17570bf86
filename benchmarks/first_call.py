"""Share of processes in which the same first steps of Adam have other results, without and with det_torch.

Each process is a fork of one that has imported torch but computed nothing with threads. To provoke differences, keep
the other cores busy.
"""

from __future__ import annotations

import collections
import hashlib
import os
import sys
import time

import torch
from torch.nn import functional as F  # noqa: N812

SECONDS = 30.0


def first_steps(prepare: bool) -> bytes:
    """Return a digest of the weights after two steps in a child process.

    Args:
        prepare: import det_torch's preparation of MKL first.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        if prepare:
            import det_torch._mkl  # noqa: F401
        torch.manual_seed(1)
        inputs, labels = torch.rand(2, 32, 64), torch.randint(10, (2, 32))
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
        for batch, label in zip(inputs, labels, strict=True):
            F.cross_entropy(model(batch), label).backward()
            optimizer.step()
            optimizer.zero_grad()
        digest = hashlib.md5(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
        os.write(write, digest.digest())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        digest_of_child = answer.read()
    os.waitpid(child, 0)
    return digest_of_child


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    torch.optim.Adam([torch.nn.Parameter(torch.empty(1))])  # imports modules that otherwise every child would import
    found: dict[bool, collections.Counter[bytes]] = {False: collections.Counter(), True: collections.Counter()}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for prepare, digests in found.items():
            digests[first_steps(prepare)] += 1
    for name, digests in (("torch alone", found[False]), ("with det_torch", found[True])):
        total, odd = digests.total(), digests.total() - digests.most_common(1)[0][1]
        print(f"{name:16}{odd:4} of {total} processes differ ({odd / total:.1%})")


if __name__ == "__main__":
    main()
