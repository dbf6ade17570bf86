"""Pages of the public Python API, made of source code and docstrings without importing either.

``tools/public_api.py`` knows the public modules and names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from textwrap import dedent, indent
from typing import Any

from public_api import public_names

_ROLE = re.compile(r":[a-z:]+:(?=`)")
_CODE = re.compile(r"``(.+?)``|(?<![\w`])`([^`\s<>]+)`(?![`_])", re.DOTALL)
_SPECIAL = re.compile(r"(?<!\w)\*(?![\w*])|[\\[]|<(?=[\w/!])|(?<!\w)_|_(?!\w)")
_VERBATIM = {">>> ": "pycon", "==": "text"}
"""The languages of examples of a session and of tables, by their first characters."""
_WIDTH = 100
"""Maximum length of a signature on one line."""
_LONG = 80
"""Maximum length of the value of a constant that is shown."""
_PARSED = {"warnings": False, "returns_multiple_items": False, "returns_named_value": False}
_DECORATORS = ("abstractmethod", "asynccontextmanager", "classmethod", "contextmanager", "staticmethod", "property")
_LISTS = {
    "parameters": "Parameters",
    "other parameters": "Parameters",
    "attributes": "Attributes",
    "raises": "Raises",
}

Member = Any


class ApiReference:
    """Pages of the public modules, whose names are links wherever a docstring has them."""

    def __init__(self, packages: Mapping[str, Mapping[str, Member]]) -> None:
        self._packages = packages
        self._modules = {path: module for modules in packages.values() for path, module in modules.items()}
        self._homes = self._find_homes()
        self._targets = dict(self._documented())
        """The page and heading of each name, which are those of its class for attributes."""

    def pages(self) -> dict[str, str]:
        """Return the text of each module's page, as Markdown."""
        return {path: "\n".join(self._module(path, module)).rstrip() + "\n" for path, module in self._modules.items()}

    def index(self) -> str:
        """Return a table of the modules of each package, as Markdown."""
        lines = []
        for package, modules in self._packages.items():
            lines += [f"## {package}", "", "| module | contents |", "|---|---|"]
            lines += [f"| [{path}]({path}.md) | {self._summary(path)} |" for path in modules]
            lines.append("")
        return "\n".join(lines)

    def _summary(self, path: str) -> str:
        docstring = self._modules[path].docstring
        first = self._text(docstring.value.partition("\n")[0], path, None) if docstring else ""
        return first.replace("](#", f"]({path}.md#")

    def _find_homes(self) -> dict[str, str]:
        """Return the public name under which each object is documented, by its canonical path.

        Of several names, it is that in the module that is closest to the definition.
        """
        found: dict[str, list[str]] = {}
        for path, module in self._modules.items():
            for name in names_of(module):
                found.setdefault(_final(module[name]).canonical_path, []).append(f"{path}.{name}")
        return {
            canonical: max(names, key=lambda name: (canonical.startswith(name.rpartition(".")[0] + "."), len(name)))
            for canonical, names in found.items()
        }

    def _documented(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for path, module in self._modules.items():
            yield path, (path, "")
            for name in names_of(module):
                member = _final(module[name])
                if self._homes[member.canonical_path] == f"{path}.{name}":
                    yield from self._with_members(path, name, member)

    def _with_members(self, path: str, name: str, member: Member) -> Iterator[tuple[str, tuple[str, str]]]:
        yield from ((f"{path}.{name}.{inner}", (path, name)) for inner in _described(member))
        yield f"{path}.{name}", (path, name)
        for inner, part in self._members(member):
            if part.is_attribute and "property" not in part.labels:
                yield f"{path}.{name}.{inner}", (path, name)
            else:
                yield from self._with_members(path, f"{name}.{inner}", part)

    def _members(self, owner: Member) -> list[tuple[str, Member]]:
        """Return the public members of a class, with those of its bases that are not public.

        Attributes that only the docstring of the class describes are not among them.
        """
        if not owner.is_class:
            return []
        found: dict[str, Member] = {}
        for base in [owner, *self._private_bases(owner)]:
            for name, part in base.members.items():
                if not name.startswith(("_", "test_")) and not part.is_alias and not part.is_module:
                    found.setdefault(name, part)
        described = _described(owner)
        return [(name, part) for name, part in found.items() if name not in described or self._docstring_of(part)]

    def _private_bases(self, owner: Member) -> list[Member]:
        return [base for base in owner.mro() if base.canonical_path not in self._homes]

    def _module(self, path: str, module: Member) -> Iterator[str]:
        yield from (f"# {path}", "")
        if module.docstring:
            yield from (self._text(module.docstring.value, path, None), "")
        order = [(name, _final(module[name])) for name in names_of(module)]
        for kind in ("class", "function", "attribute", "type alias", "module"):
            for name, member in order:
                if member.kind.value == kind:
                    yield from self._top_level(path, name, member)

    def _top_level(self, path: str, name: str, member: Member) -> Iterator[str]:
        home = self._homes[member.canonical_path]
        if member.is_module:
            yield f"- [`{member.path}`]({member.path}.md)" if member.path in self._modules else f"- `{member.path}`"
        elif home == f"{path}.{name}":
            yield from self._object(path, name, member, level=2)
        else:
            yield from (f"## `{name}`", "", f"Same as {self._link(home, home, path)}.", "")

    def _object(self, path: str, name: str, member: Member, *, level: int) -> Iterator[str]:
        """Yield the description of an object and of its members."""
        yield from (f"{'#' * level} `{name}`", "", "```python", *self._head(name.rpartition(".")[2], member), "```", "")
        if text := self._docstring(path, name, member):
            yield from (text, "")
        members = self._members(member)
        attributes = [part for part in members if part[1].is_attribute and "property" not in part[1].labels]
        if attributes:
            yield from ("Attributes:", "", *(self._attribute(path, name, *part) for part in attributes), "")
        for inner, part in members:
            if (inner, part) not in attributes:
                yield from self._object(path, f"{name}.{inner}", part, level=level + 1)

    def _attribute(self, path: str, owner: str, name: str, member: Member) -> str:
        docstring = self._docstring_of(member)
        return _item(f"`{_declaration(name, member)}`", self._text(docstring.value, path, owner) if docstring else "")

    def _head(self, name: str, member: Member) -> Iterator[str]:
        decorators = [str(one.value).rpartition(".")[2] for one in getattr(member, "decorators", ())]
        yield from (f"@{name}" for name in _DECORATORS if name in member.labels or name in decorators)
        if member.is_function:
            kind = "async def" if "async" in member.labels else "def"
            yield _signature(f"{kind} {name}", member, bound=member.parent.is_class)
        elif member.is_class:
            kind = "exception" if _is_exception(member) else "class"
            final = next((base for base in [member, *self._private_bases(member)] if "__init__" in base.members), None)
            constructor = final.members["__init__"] if final else None
            yield _signature(f"{kind} {name}", constructor, bound=True, returns=False) if final else f"{kind} {name}"
        else:
            yield _declaration(name, member)

    def _docstring(self, path: str, name: str, member: Member) -> str:
        docstring = self._docstring_of(member)
        lines = [self._bases(path, member)] if member.is_class else []
        if docstring:
            scope = name if member.is_class else name.rpartition(".")[0]
            lines += [self._section(part, path, scope) for part in docstring.parse("google", **_PARSED)]
        return "\n\n".join(filter(None, lines))

    def _docstring_of(self, member: Member) -> Any:
        """Return the docstring of a member, or that of the member that it overrides."""
        if member.docstring or not (member.parent and member.parent.is_class):
            return member.docstring
        overridden = (base.members.get(member.name) for base in member.parent.mro())
        return next((part.docstring for part in overridden if part and not part.is_alias and part.docstring), None)

    def _bases(self, path: str, member: Member) -> str:
        homes = [self._homes.get(base.canonical_path) for base in member.mro()]
        public = next((home for home in homes if home), None)
        return f"Base: {self._link(public, public, path)}" if public else ""

    def _section(self, section: Any, path: str, scope: str) -> str:
        def text(value: str) -> str:
            return self._text(value, path, scope)

        match section.kind.value:
            case "text":
                return text(section.value)
            case "parameters" | "other parameters" | "attributes" as kind:
                items = [_item(f"`{item.name}`", text(item.description)) for item in section.value]
                return "\n".join([f"{_LISTS[kind]}:", "", *items])
            case "raises" as kind:
                items = [_item(self._raised(item, path), text(item.description)) for item in section.value]
                return "\n".join([f"{_LISTS[kind]}:", "", *items])
            case "returns" | "yields" as kind:
                return "\n\n".join(f"{kind.title()}: {text(_result(item))}" for item in section.value)
            case "examples":
                return "\n\n".join(
                    f"```python\n{value}\n```" if kind.value == "examples" else text(value)
                    for kind, value in section.value
                )
            case "admonition":
                return f"**{section.title or section.value.annotation}**\n\n{text(section.value.description)}"
        raise ValueError(f"docstring section {section.kind.value!r} of {scope} has no rendering; add a case for it")

    def _raised(self, item: Any, path: str) -> str:
        name = str(item.annotation)
        home = self._short_names.get(name.rpartition(".")[2])
        return self._link(name, home, path) if home else f"`{name}`"

    def _text(self, text: str, path: str, scope: str | None) -> str:
        """Return a docstring as Markdown, in which names in single backticks are links if they are public."""
        written: list[str] = []
        code = False
        for paragraph in _ROLE.sub("", text).split("\n\n"):
            code = code and paragraph.startswith("    ")
            if code and written[-1].endswith("```"):
                written[-1] = f"{written[-1].removesuffix('```')}\n{dedent(paragraph)}\n```"
            elif code:
                written.append(f"```{_language(dedent(paragraph))}\n{dedent(paragraph)}\n```")
            elif kind := next((kind for start, kind in _VERBATIM.items() if paragraph.startswith(start)), None):
                written.append(f"```{kind}\n{paragraph}\n```")
            else:
                code = paragraph.endswith("::")
                written.append(self._prose(paragraph.removesuffix(":") if code else paragraph, path, scope))
        return "\n\n".join(written).strip()

    def _prose(self, text: str, path: str, scope: str | None) -> str:
        parts: list[str] = []
        end = 0
        for match in _CODE.finditer(text):
            target = match[2] and self._resolve(match[2].removesuffix("()"), path, scope)
            code = match[1] or match[2]
            parts += [escaped(text[end : match.start()]), self._link(code, target, path) if target else f"`{code}`"]
            end = match.end()
        return "".join([*parts, escaped(text[end:])])

    def _resolve(self, name: str, module: str, scope: str | None) -> str | None:
        first, _, rest = name.partition(".")
        places = [name, f"{module}.{name}"]
        if scope:
            places += [f"{module}.{scope}.{name}", f"{module}.{scope}".rpartition(".")[0] + f".{name}"]
        if first in self._short_names:
            places.append(f"{self._short_names[first]}.{rest}".rstrip("."))
        return next((place for place in places if place in self._targets), None)

    def _link(self, text: str, target: str, path: str) -> str:
        page, heading = self._targets[target]
        anchor = f"#{heading.replace('.', '').lower()}" if heading else ""
        return f"[`{text}`]({anchor if page == path and anchor else f'{page}.md{anchor}'})"

    @cached_property
    def _short_names(self) -> dict[str, str]:
        """Return the homes of the names that only one public object has, by name."""
        names: dict[str, set[str]] = {}
        for home in self._homes.values():
            names.setdefault(home.rpartition(".")[2], set()).add(home)
        return {name: homes.pop() for name, homes in names.items() if len(homes) == 1}


def names_of(module: Member) -> list[str]:
    """Return the public names of a module, without lists of names that its ``__all__`` contains."""
    return [name for name in public_names(module) if not name.startswith("_")]


def _final(member: Member) -> Member:
    return member.final_target if member.is_alias else member


def _is_exception(member: Member) -> bool:
    names = [str(base) for owner in [member, *member.mro()] for base in owner.bases]
    return any(name.endswith(("Error", "Exception")) for name in names)


def _described(member: Member) -> set[str]:
    """Return the names that the docstring of a class describes, which need no entry of their own."""
    sections = member.docstring.parse("google", warnings=False) if member.is_class and member.docstring else ()
    return {
        item.name
        for section in sections
        if section.kind.value in ("parameters", "attributes")
        for item in section.value
    }


def _declaration(name: str, member: Member) -> str:
    annotation = f": {member.annotation}" if member.annotation else ""
    value = str(member.value) if member.value is not None else ""
    shown = value and len(value) <= _LONG and "\n" not in value and "Field(" not in value and "field(" not in value
    return f"{name}{annotation} = {value}" if shown else f"{name}{annotation}"


def _signature(head: str, function: Member, *, bound: bool, returns: bool = True) -> str:
    parameters = list(function.parameters)
    if bound and parameters and "staticmethod" not in function.labels:
        parameters = parameters[1:]
    written, kinds = [], [parameter.kind.value for parameter in parameters]
    for place, parameter in enumerate(parameters):
        kind = parameter.kind.value
        if kind == "keyword-only" and "variadic positional" not in kinds and "keyword-only" not in kinds[:place]:
            written.append("*")
        written.append(_parameter(parameter))
        if kind == "positional-only" and kinds[place + 1 : place + 2] != ["positional-only"]:
            written.append("/")
    result = f" -> {function.returns}" if returns and function.returns else ""
    line = f"{head}({', '.join(written)}){result}"
    return line if len(line) <= _WIDTH else "\n".join([f"{head}(", *(f"    {one}," for one in written), f"){result}"])


def _parameter(parameter: Any) -> str:
    stars = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
    default = "" if stars or parameter.default is None else str(parameter.default)
    typed = f"{stars}{parameter.name}: {parameter.annotation}" if parameter.annotation else f"{stars}{parameter.name}"
    return f"{typed} = {default}" if default else typed


def _language(code: str) -> str:
    try:
        ast.parse(code)
    except SyntaxError:
        return "text"
    return "python"


def escaped(text: str) -> str:
    """Return prose whose characters mean the same in Markdown."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _item(head: str, text: str) -> str:
    return f"- {head}: " + indent(text, "  ").lstrip() if text else f"- {head}"


def _result(item: Any) -> str:
    # A description without a type, as the signature has it, is parsed as a type if it contains a colon.
    return f"{item.annotation}: {item.description}" if item.annotation and not item.description else item.description
