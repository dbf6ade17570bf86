"""Detection of the original distribution, which has the same import names."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parents[1]
_PATTERNS = {"determined": "determined-*.dist-info", "determined_common": "determined_common-*.dist-info"}


def check_no_conflict() -> None:
    """Raise if another distribution has files in these packages.

    Raises:
        ImportError: there is one. The message says what to uninstall.
    """
    for package, pattern in _PATTERNS.items():
        for directory in _HERE.glob(pattern):
            record = directory / "RECORD"
            if record.exists() and f"{package}/__init__.py," in record.read_text(encoding="utf-8"):
                from det_core.package_commands import package_command

                remove = package_command("uninstall", package.replace("_", "-"))
                restore = package_command("reinstall", "det-core", "det-compat")
                raise ImportError(
                    f"{' '.join(directory.stem.split('-'))} and det-compat are both installed in {_HERE}, where each "
                    f"overwrites files of the other; type: {remove}; {restore}"
                )
