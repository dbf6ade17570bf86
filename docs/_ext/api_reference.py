"""Reference of the public Python API, generated from source code and docstrings without importing either.

Before each build, ``docs/reference/api`` is filled with a page per public module. ``tools/public_api.py`` knows the
public modules and names. On the page ``reference/api/index``, the line ``<!-- modules -->`` is replaced by their table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any

import griffe
from docutils import nodes
from public_api import load_modules, public_names
from repository_files import write_changed
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import find_pending_xref_condition

_INDEX, _MARK = "reference/api/index", "<!-- modules -->"
_ROLE = re.compile(r":[a-z:]+:(?=`)")
_NAME = re.compile(r"(?<![`\w:])`([^`\s<>]+)`(?![`_])")
_LONG = 80
"""Maximum length of the value of a constant that is shown."""
_PARSED = {"warnings": False, "returns_multiple_items": False, "returns_named_value": False}
_KINDS = {
    "abstractmethod": "abstractmethod",
    "classmethod": "classmethod",
    "staticmethod": "staticmethod",
    "async": "async",
}

Member = Any


class ApiReference:
    """Pages of the public modules, whose names are links wherever a signature or docstring has them."""

    def __init__(self, packages: Mapping[str, Mapping[str, Member]]) -> None:
        self.packages = packages
        self._modules = {path: module for modules in packages.values() for path, module in modules.items()}
        self._homes = self._find_homes()
        self._targets = dict(self._documented())
        """The entry that documents each name, which is that of its class for described attributes."""

    def pages(self) -> dict[str, str]:
        """Return the text of each module's page, in reStructuredText."""
        return {path: "\n".join(self._module(path, module)) for path, module in self._modules.items()}

    def summary(self, path: str) -> str:
        """Return the first line of a module's docstring, as Markdown."""
        docstring = self._modules[path].docstring
        return _ROLE.sub("", docstring.value.partition("\n")[0]).replace("``", "`") if docstring else ""

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

    def _documented(self) -> Iterator[tuple[str, str]]:
        for path, module in self._modules.items():
            yield path, path
            for name in names_of(module):
                member = _final(module[name])
                if self._homes[member.canonical_path] == f"{path}.{name}":
                    yield from self._with_members(f"{path}.{name}", member)

    def _with_members(self, home: str, member: Member) -> Iterator[tuple[str, str]]:
        yield from ((f"{home}.{name}", home) for name in _described(member))
        yield home, home
        for name, part in self._members(member):
            yield from self._with_members(f"{home}.{name}", part)

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
        yield from (path, "=" * len(path), "", f".. py:module:: {path}", "")
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
            target = member.path if member.path in self._modules else None
            yield f"- :py:mod:`{target}`" if target else f"- ``{member.path}``"
        elif home == f"{path}.{name}":
            yield from self._object(home, name, member, module=path)
        else:
            yield from (f".. py:data:: {name}", "   :no-index:", "", f"   Same as :py:obj:`{home}`.", "")

    def _object(self, home: str, name: str, member: Member, *, module: str) -> Iterator[str]:
        """Yield the description of an object and of its members."""
        yield from self._head(name, member)
        yield ""
        body = [self._docstring(home, member, module)]
        for inner, part in self._members(member):
            body.append("\n".join(self._object(f"{home}.{inner}", inner, part, module=module)))
        yield from (indent("\n\n".join(filter(None, body)), "   "), "")

    def _head(self, name: str, member: Member) -> Iterator[str]:
        if member.is_function:
            kind = "py:method" if member.parent.is_class else "py:function"
            yield f".. {kind}:: {name}{self._signature(member, bound=member.parent.is_class)}"
            yield from (f"   :{option}:" for label, option in _KINDS.items() if label in member.labels)
        elif member.is_class:
            final = next((base for base in [member, *self._private_bases(member)] if "__init__" in base.members), None)
            signature = self._signature(final.members["__init__"], bound=True, returns=False) if final else ""
            yield f".. py:{'exception' if _is_exception(member) else 'class'}:: {name}{signature}"
        elif "property" in member.labels:
            yield f".. py:property:: {name}"
            yield from self._options(member, ("abstractmethod", "classmethod"))
        else:
            yield f".. py:{'attribute' if member.parent.is_class else 'data'}:: {name}"
            yield from self._options(member, ())
            value = str(member.value) if member.value is not None else ""
            if value and len(value) <= _LONG and "\n" not in value and "Field(" not in value:
                yield f"   :value: {value}"

    def _options(self, member: Member, labels: Iterable[str]) -> Iterator[str]:
        yield from (f"   :{label}:" for label in labels if label in member.labels)
        if annotation := self._annotation(member.annotation):
            yield f"   :type: {annotation}"

    def _signature(self, function: Member, *, bound: bool, returns: bool = True) -> str:
        parameters = list(function.parameters)
        if bound and parameters and "staticmethod" not in function.labels:
            parameters = parameters[1:]
        written, kinds = [], [parameter.kind.value for parameter in parameters]
        for place, parameter in enumerate(parameters):
            kind = parameter.kind.value
            if kind == "keyword-only" and "variadic positional" not in kinds and "keyword-only" not in kinds[:place]:
                written.append("*")
            written.append(self._parameter(parameter))
            if kind == "positional-only" and kinds[place + 1 : place + 2] != ["positional-only"]:
                written.append("/")
        result = self._annotation(function.returns) if returns else ""
        return f"({', '.join(written)})" + (f" -> {result}" if result else "")

    def _parameter(self, parameter: Any) -> str:
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
        annotation = self._annotation(parameter.annotation)
        default = "" if stars or parameter.default is None else str(parameter.default)
        typed = f"{stars}{parameter.name}: {annotation}" if annotation else f"{stars}{parameter.name}"
        return f"{typed} = {default}" if default else typed

    def _annotation(self, expression: Any) -> str:
        """Return a type with the public names of the API's classes, which become links."""
        if expression is None or isinstance(expression, str):
            return expression or ""
        parts = expression.iterate(flat=True) if isinstance(expression, griffe.Expr) else (expression,)
        return "".join(part if isinstance(part, str) else self._type_name(part) for part in parts)

    def _type_name(self, name: Any) -> str:
        return self._homes.get(name.canonical_path, name.name)

    def _docstring(self, home: str, member: Member, module: str) -> str:
        docstring = self._docstring_of(member)
        lines = [self._bases(member)] if member.is_class else []
        if docstring:
            scope = home if member.is_class else home.rpartition(".")[0]
            lines += [self._section(part, module, scope) for part in docstring.parse("google", **_PARSED)]
        return "\n\n".join(filter(None, lines))

    def _docstring_of(self, member: Member) -> Any:
        """Return the docstring of a member, or that of the member that it overrides."""
        if member.docstring or not (member.parent and member.parent.is_class):
            return member.docstring
        overridden = (base.members.get(member.name) for base in member.parent.mro())
        return next((part.docstring for part in overridden if part and not part.is_alias and part.docstring), None)

    def _bases(self, member: Member) -> str:
        homes = [self._homes.get(base.canonical_path) for base in member.mro()]
        public = next((home for home in homes if home), None)
        return f"Bases: :py:class:`{public}`" if public else ""

    def _section(self, section: Any, module: str, scope: str) -> str:
        def text(value: str) -> str:
            return self._text(value, module, scope)

        match section.kind.value:
            case "text":
                return text(section.value)
            case "parameters" | "other parameters":
                return "\n".join(
                    _field(f"param {_escaped(item.name)}", text(item.description)) for item in section.value
                )
            case "attributes":
                return "\n".join(_field(f"ivar {item.name}", text(item.description)) for item in section.value)
            case "raises":
                return "\n".join(_field(self._raised(item), text(item.description)) for item in section.value)
            case "returns" | "yields" as kind:
                return "\n".join(_field(kind, text(_result(item))) for item in section.value)
            case "examples":
                return "\n\n".join(value if kind.value == "examples" else text(value) for kind, value in section.value)
            case "admonition":
                return f"**{section.title or section.value.annotation}**\n\n{text(section.value.description)}"
        raise ValueError(f"docstring section {section.kind.value!r} of {scope} has no rendering; add a case for it")

    def _raised(self, item: Any) -> str:
        name = str(item.annotation)
        return f"raises {self._short_names.get(name.rpartition('.')[2], name)}"

    def _text(self, text: str, module: str, scope: str | None) -> str:
        """Return a docstring whose names in single backticks are links if they are public, and code otherwise."""

        def link(match: re.Match[str]) -> str:
            name = match[1].removesuffix("()")
            target = self._resolve(name, module, scope)
            return f":py:obj:`{match[1]} <{target}>`" if target else f"``{match[1]}``"

        return _NAME.sub(link, _ROLE.sub("", text))

    def _resolve(self, name: str, module: str, scope: str | None) -> str | None:
        first, _, rest = name.partition(".")
        places = [
            name,
            f"{module}.{name}",
            *([f"{scope}.{name}", f"{scope.rpartition('.')[0]}.{name}"] if scope else []),
        ]
        if first in self._short_names:
            places.append(f"{self._short_names[first]}.{rest}".rstrip("."))
        return next((self._targets[place] for place in places if place in self._targets), None)

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


def _escaped(name: str) -> str:
    return name.replace("*", r"\*")


def _field(name: str, text: str) -> str:
    return f":{name}: " + indent(text, "   ").lstrip()


def _result(item: Any) -> str:
    # A description without a type, as the signature has it, is parsed as a type if it contains a colon.
    return f"{item.annotation}: {item.description}" if item.annotation and not item.description else item.description


def _write_pages(app: Sphinx) -> None:
    app.det_api = reference = ApiReference(load_modules())  # type: ignore[attr-defined]
    folder = Path(app.srcdir) / "reference" / "api"
    write_changed({folder / f"{path}.rst": text for path, text in reference.pages().items()}, folder, "*.rst")


def _replace_mark(app: Sphinx, page: str, content: list[str]) -> None:
    if page != _INDEX:
        return
    reference: ApiReference = app.det_api  # type: ignore[attr-defined]
    lines = []
    for package, modules in reference.packages.items():
        lines += [f"## {package}", "", "| module | contents |", "|---|---|"]
        lines += [f"| [{path}]({path}.rst) | {reference.summary(path)} |" for path in modules]
        lines += ["", "```{toctree}", ":hidden:", "", *modules, "```", ""]
    content[0] = content[0].replace(_MARK, "\n".join(lines))


def _drop_foreign(app: Sphinx, document: nodes.document) -> None:
    """Leave names of other libraries in signatures without a link."""
    for reference in list(document.findall(pending_xref)):
        if reference.get("refdomain") == "py" and not reference["reftarget"].startswith("det_"):
            shown = find_pending_xref_condition(reference, "resolved")
            reference.replace_self(shown.children if shown else reference.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _replace_mark)
    app.connect("doctree-read", _drop_foreign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
