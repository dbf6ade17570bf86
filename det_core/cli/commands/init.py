"""Command ``det init``, which writes a config and a trial that train as they are."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from det_core.cli._command_table import JSON, make_argument, set_up_command
from det_core.cli.render.printing import print_json
from det_core.errors import DetError, PluginNotFound
from det_core.plugins import plugin_registry
from det_core.specs import FrameworkSpec

_CORE = "core"
"""Name for a script on the Core API, which needs no framework."""
_PREFERRED = "pytorch"
_DIRECTORY = Path(__file__).parents[1] / "templates" / "trials"
"""Directory with the data of all starters."""
_CONFIG = "const.yaml"
_ARGUMENTS = (
    make_argument(
        "--framework",
        metavar="NAME",
        help="pytorch, keras, estimator, a framework of another plugin, or core: a script without a framework; "
        "default: the installed framework, pytorch if there are several, core if there is none",
    ),
    make_argument(
        "directory", type=Path, nargs="?", default=Path(), metavar="DIR", help="default: the working directory"
    ),
    JSON,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "\n--framework core my-project")


def _run(args: argparse.Namespace) -> int:
    starters = _find_starters()
    framework = args.framework or _choose_default(starters)
    if framework not in starters:
        plugin_registry().find("framework", framework)  # raises an error that says what to install
        raise PluginNotFound(f"the framework {framework!r} has no starter; expected one of: {', '.join(starters)}")
    directory: Path = args.directory
    files = [path for path in _locate_starter(starters[framework]).iterdir() if path.is_file()]
    written = sorted([*files, _DIRECTORY / "iris.csv"], key=lambda path: path.name)
    write_new_files(directory, {path.name: path.read_text(encoding="utf-8") for path in written})
    commands = [f"cd {shlex.quote(str(directory))}"] * (directory != Path())
    commands += [f"det config check {_CONFIG}", f"det run {_CONFIG}"]
    if args.json:
        names = [path.name for path in written]
        print_json({"framework": framework, "directory": directory.absolute(), "files": names, "next": commands})
    else:
        print(f"Wrote a trial for {framework}: {', '.join(path.name for path in written)}. Next, type:")
        print(*(f"  {command}" for command in commands), sep="\n")
    return 0


def _find_starters() -> dict[str, str]:
    """Return the places of the starters by framework, as in `FrameworkSpec`."""
    specs = (cast(FrameworkSpec, spec) for spec in plugin_registry().specs("framework"))
    return {**{spec.name: spec.starter for spec in specs if spec.starter}, _CORE: "det_core.cli:templates/trials/core"}


def _locate_starter(starter: str) -> Path:
    """Return the directory that ``package:directory`` names. The package is not imported.

    Raises:
        DetError: there is no such directory.
    """
    package, _, name = starter.partition(":")
    found = find_spec(package)
    for location in (found.submodule_search_locations or ()) if found else ():
        if (directory := Path(location, name)).is_dir():
            return directory
    raise DetError(f"the starter {starter!r} of a framework is missing; install its plugin again")


def _choose_default(starters: Mapping[str, str]) -> str:
    return _PREFERRED if _PREFERRED in starters else next(iter(starters))


def write_new_files(directory: Path, contents: Mapping[str, str]) -> None:
    """Write files that do not exist yet. After a failure, none of them is left behind.

    Args:
        directory: directory of the files, which is created if its parent exists.
        contents: contents of the files by name.

    Raises:
        DetError: one of the files exists, or the parent of the directory does not.
        OSError: the files cannot be written.
    """
    if existing := [name for name in contents if (directory / name).exists() or (directory / name).is_symlink()]:
        raise DetError(
            f"{directory.absolute()} already has {', '.join(existing)}, which is not overwritten; choose another DIR, "
            "such as: det init my-project"
        )
    if not directory.absolute().parent.is_dir():
        parent = directory.absolute().parent
        raise DetError(f"the directory {parent} does not exist; type: mkdir -p {shlex.quote(str(parent))}")
    created, written = not directory.exists(), []
    try:
        directory.mkdir(exist_ok=True)
        for name, text in contents.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                written.append(directory / name)
                file.write(text)
    except BaseException as error:
        for path in written:
            path.unlink()
        if created and directory.is_dir():
            directory.rmdir()
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise DetError(f"{error.filename} exists and is not overwritten; choose another DIR") from None
        raise
