"""Command ``det model``, which manages the model registry."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from det_core.cli._command_table import (
    FILTERS,
    JSON,
    LIMIT,
    OUTPUT,
    REVERSE,
    YES,
    Command,
    UsageError,
    add_commands,
    make_argument,
)
from det_core.cli.commands._confirmation import confirm_removal
from det_core.cli.render.printing import print_json
from det_core.core.client_events import ClientEvents
from det_core.home import user_name
from det_core.interfaces.model_records import ModelRecord, ModelSort, ModelVersionRecord
from det_core.text import format_count, format_facts, format_table, format_value, join_sections, record_to_json
from det_core.tracking import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    with open_store() as store:
        found = store.models(
            sort_by=ModelSort(args.sort_by),
            descending=args.reverse,
            name=args.name,
            description=args.description,
            archived=None if args.all else False,
            limit=args.limit,
            brief=not args.json,
        )
    if args.json:
        print_json(found)
    else:
        print(_model_table(found) if found else "No models. To create one: det model create NAME")
    return 0


def _describe(args: argparse.Namespace) -> int:
    with open_store() as store:
        model, versions = store.model(args.name), store.model_versions(args.name)
    if args.json:
        print_json(record_to_json(model, model_versions=versions))
    else:
        print(join_sections(_model_facts(model), _version_table(versions) if versions else ""))
    return 0


def _versions(args: argparse.Namespace) -> int:
    with open_store() as store:
        versions = store.model_versions(args.name)
    if args.json:
        print_json(versions)
    else:
        none = f"No versions. To add one: det model register-version {args.name} UUID"
        print(_version_table(versions) if versions else none)
    return 0


def _create(args: argparse.Namespace) -> int:
    with open_store() as store:
        try:
            model = store.create_model(
                args.name,
                description=args.description or "",
                metadata=dict(args.metadata),
                labels=args.labels,
                notes=args.notes or "",
                owner=user_name(),
            )
        except ValueError as error:  # a name with a slash, for example
            raise UsageError(str(error)) from error
    return _tell(args, model, f"Created model {model.name}")


def _register(args: argparse.Namespace) -> int:
    with open_store() as store:
        version = store.add_model_version(
            args.name,
            args.uuid,
            version_name=args.version_name or "",
            comment=args.comment or "",
            notes=args.notes or "",
            owner=user_name(),
        )
        with ClientEvents(store) as client:
            client.model_version_registered(args.name, version)
    return _tell(args, version, f"Checkpoint {args.uuid} is version {version.version} of model {args.name}")


def _edit(args: argparse.Namespace) -> int:
    with open_store() as store:
        store.edit_model(args.name, description=args.description, notes=args.notes, labels=args.labels or None)
        model = store.edit_model_metadata(args.name, add=dict(args.metadata), remove=args.remove_metadata)
    return _tell(args, model, f"Changed model {model.name}")


def _edit_version(args: argparse.Namespace) -> int:
    with open_store() as store:
        version = store.edit_model_version(
            args.name, args.version, version_name=args.version_name, comment=args.comment, notes=args.notes
        )
    return _tell(args, version, f"Changed version {args.version} of model {args.name}")


def _archive(args: argparse.Namespace) -> int:
    return _put_aside(args, archived=True)


def _unarchive(args: argparse.Namespace) -> int:
    return _put_aside(args, archived=False)


def _put_aside(args: argparse.Namespace, *, archived: bool) -> int:
    with open_store() as store:
        model = store.edit_model(args.name, archived=archived)
    return _tell(args, model, f"{'Archived' if archived else 'Unarchived'} model {model.name}")


def _delete(args: argparse.Namespace) -> int:
    with open_store() as store:
        model = store.model(args.name)
        question = (
            f"Delete model {model.name} with {format_count(model.versions, 'version')}, but keep the checkpoints?"
        )
        if not (args.yes or confirm_removal(question, as_json=args.json)):
            return 1
        store.delete_model(args.name)
    return _tell(args, model, f"Deleted model {model.name}; the checkpoints of its versions still exist")


def _delete_version(args: argparse.Namespace) -> int:
    with open_store() as store:
        version = store.model_version(args.name, args.version)
        question = f"Delete version {args.version} of model {args.name}, but keep its checkpoint?"
        if not (args.yes or confirm_removal(question, as_json=args.json)):
            return 1
        store.delete_model_version(args.name, args.version)
    return _tell(args, version, f"Deleted version {args.version}; checkpoint {version.checkpoint_uuid} still exists")


def _tell(args: argparse.Namespace, record: ModelRecord | ModelVersionRecord, done: str) -> int:
    if args.json:
        print_json(record)
    else:
        print(done)
    return 0


def _model_table(models: Sequence[ModelRecord]) -> str:
    return format_table(
        ("name", "versions", "updated", "owner", "labels", "description"),
        (
            (one.name, one.versions, one.last_updated_time, one.owner, ", ".join(one.labels), one.description)
            for one in models
        ),
    )


def _version_table(versions: Sequence[ModelVersionRecord]) -> str:
    return format_table(
        ("version", "checkpoint", "registered", "by", "name", "comment"),
        ((one.version, one.checkpoint_uuid, one.creation_time, one.owner, one.name, one.comment) for one in versions),
    )


def _model_facts(model: ModelRecord) -> str:
    return format_facts(
        {
            "model": model.name,
            "description": model.description,
            "labels": ", ".join(model.labels),
            "archived": "yes" if model.archived else None,
            "owner": model.owner,
            "created": model.creation_time,
            "updated": model.last_updated_time,
            **{f"metadata.{key}": format_value(value) for key, value in model.metadata.items()},
            "notes": model.notes,
        }
    )


def _pair(given: str) -> tuple[str, Any]:
    key, equals, value = given.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE such as stage=production, got {given!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


_NAME = make_argument("name", metavar="NAME", help="name of a model")
_VERSION = make_argument("version", type=int, metavar="VERSION", help="number of a version")
_NOTES = make_argument("--notes", metavar="TEXT", help="further notes")
_ABOUT_MODEL = (
    make_argument("--description", metavar="TEXT", help="purpose of the model"),
    _NOTES,
    make_argument(
        "--label", action="append", default=[], dest="labels", metavar="LABEL", help="a label; may be repeated"
    ),
    make_argument(
        "--metadata",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="metadata of the model; a VALUE that is not JSON is text; may be repeated",
    ),
)
_ABOUT_VERSION = (
    make_argument("--name", dest="version_name", metavar="TEXT", help="a name for the version"),
    make_argument("--comment", metavar="TEXT", help="why the version was registered"),
    _NOTES,
)
_COMMANDS = (
    Command(
        "list",
        _list,
        "list models",
        (
            make_argument(
                "--name", default="", metavar="TEXT", help="only models whose name contains TEXT", group=FILTERS
            ),
            make_argument(
                "--description",
                default="",
                metavar="TEXT",
                help="only models whose description contains TEXT",
                group=FILTERS,
            ),
            make_argument(
                "--sort-by",
                choices=[sort.value for sort in ModelSort],
                default=ModelSort.NAME.value,
                metavar="ORDER",
                help=f"{', '.join(sort.value for sort in ModelSort)}; default: name",
                group=OUTPUT,
            ),
            REVERSE,
            LIMIT,
            make_argument("--all", "-a", action="store_true", help="include archived models", group=FILTERS),
            JSON,
        ),
        ("ls",),
        example="--name digits",
    ),
    Command("describe", _describe, "show a model with its versions", (_NAME, JSON), example="digits"),
    Command(
        "create",
        _create,
        "add a model without versions",
        (_NAME, *_ABOUT_MODEL, JSON),
        example="digits --description 'handwritten digits' --label vision",
    ),
    Command(
        "edit",
        _edit,
        "change the description, notes, labels or metadata of a model",
        (
            _NAME,
            *_ABOUT_MODEL,
            make_argument(
                "--remove-metadata",
                action="append",
                default=[],
                metavar="KEY",
                help="remove this key of the metadata; may be repeated",
            ),
            JSON,
        ),
        example="digits --metadata stage=production",
    ),
    Command(
        "archive", _archive, "archive a model, so that it accepts no new versions", (_NAME, JSON), example="digits"
    ),
    Command("unarchive", _unarchive, "let a model accept new versions again", (_NAME, JSON), example="digits"),
    Command(
        "delete",
        _delete,
        "delete a model and its versions, but keep the checkpoints",
        (_NAME, YES, JSON),
        example="digits",
    ),
    Command(
        "register-version",
        _register,
        "make a completed checkpoint the next version of a model",
        (
            _NAME,
            make_argument("uuid", metavar="UUID", help="id of a checkpoint, see det checkpoint list"),
            *_ABOUT_VERSION,
            JSON,
        ),
        example="digits UUID --comment 'more dropout'",
    ),
    Command("list-versions", _versions, "list the versions of a model, oldest first", (_NAME, JSON), example="digits"),
    Command(
        "edit-version",
        _edit_version,
        "change the name, comment or notes of a version",
        (_NAME, _VERSION, *_ABOUT_VERSION, JSON),
        example="digits 2 --comment 'in production'",
    ),
    Command(
        "delete-version",
        _delete_version,
        "delete a version, but keep its checkpoint",
        (_NAME, _VERSION, YES, JSON),
        example="digits 2",
    ),
)
