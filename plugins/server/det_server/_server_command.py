"""Command ``det server``."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.epilog = (
        "examples:\n"
        "  det server                                       # your own experiments\n"
        "  det server --host 0.0.0.0 --users --tls-cert cert.pem --tls-key key.pem\n"
        "  det server --users --proxy-host det.example.org  # behind a proxy with TLS"
    )
    parser.add_argument(
        "--store", metavar="URL", help="tracking store, such as postgresql://det@db/det; default: det.db in DET_HOME"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen at (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=int, default=8080, metavar="PORT", help="port (default: 8080); 0 for any free one"
    )
    parser.add_argument("--users", action="store_true", help="people log in with the accounts of det user")
    parser.add_argument(
        "--checkpoint-storage",
        type=Path,
        metavar="FILE",
        help="YAML with the block checkpoint_storage of experiments that are submitted without one; default: a "
        "directory in DET_HOME",
    )
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate in PEM, and those of its issuers")
    tls.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate, in PEM")
    tls.add_argument(
        "--proxy-host",
        action="append",
        default=[],
        dest="proxy_hosts",
        metavar="NAME",
        help="name under which a reverse proxy with TLS passes requests on, such as det.example.org; may be repeated",
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from det_server._server_process import ServerOptions, run_server

    return run_server(
        ServerOptions(
            store=args.store,
            host=args.host,
            port=args.port,
            users=args.users,
            checkpoint_storage=args.checkpoint_storage,
            tls_cert=args.tls_cert,
            tls_key=args.tls_key,
            proxy_hosts=args.proxy_hosts,
            browser=not args.no_browser,
        )
    )
