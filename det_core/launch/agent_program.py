"""Old name of the node agent: ``python -m det_core.launch.agent_program`` runs `det_cluster.agent_program`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path.pop(0)  # -m imports modules from the present directory, and that of the user may contain a queue.py
    from importlib import import_module

    try:
        program = import_module("det_cluster.agent_program")
    except ModuleNotFoundError as error:
        from det_core.package_commands import package_command

        sys.exit(f"{error}; the agent of a node needs it; type: {package_command('install', 'det-cluster')}")
    sys.exit(program.main(sys.argv[1:]))
