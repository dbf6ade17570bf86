"""Metadata with which a module that pip did not install registers as a plugin."""

from __future__ import annotations

from pathlib import Path


def write_plugin_metadata(site: Path, name: str, module: str = "", version: str = "1.0") -> None:
    """Write the metadata of a distribution with one plugin, as pip would.

    Args:
        site: directory from which processes import packages.
        name: name of the distribution and of its entry point in the group ``det``.
        module: module of the plugin. By default its name is that of the distribution.
        version: version of the distribution.
    """
    stem = name.replace("-", "_")
    info = site / f"{stem}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[det]\n{name} = {module or stem}\n", encoding="utf-8")
