"""Server with accounts and all its limits at a loopback address, until stdin is closed."""

from __future__ import annotations

import logging
import sys

from det_core.tracking import open_store

from .serving import account_access, served


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    with open_store() as store, served(store, account_access) as site:
        print(site.client.address[1], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
