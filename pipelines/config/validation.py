"""A document against its model: every fault with its position, what was found, what is allowed, the nearest name."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from pipelines.base.errors import ConfigError
from pipelines.base.names import nearest
from pipelines.config.reader import Document, KeyPath

MOST_FAULTS = 10
"""Faults of one file that are listed; one wrong line can cause many."""

SECRET_NAMES = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|secret|secrets|token|credentials?|api_?key|private_?key)$", re.IGNORECASE
)
SECRET_VALUES = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|^[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@")


class Strict(BaseModel):
    """Base of the configuration's models: no unknown keys, nothing changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def validate(document: Document, model: type[Model]) -> Model:
    """The document as a ``model``. Raises ConfigError with one line for each fault."""
    refuse_secrets(document)
    try:
        # Through JSON, because pydantic's strict mode then knows that a path or a tuple arrives as text or list, and
        # still takes no "8" for 8.
        return model.model_validate_json(json.dumps(document.values), strict=True)
    except ValidationError as error:
        raise _config_error(document, model, error) from None


def refuse_secrets(document: Document) -> None:
    """Passwords and keys are named by path or environment variable, never written into a file that is committed."""

    def walk(value: Any, path: KeyPath) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if SECRET_NAMES.search(key):
                    raise ConfigError(
                        f"{document.position((*path, key), of_key=True)}: '{key}' would put a secret into a file",
                        hint=f"name the environment variable that holds it instead: '{key}_env'",
                    )
                walk(inner, (*path, key))
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, (*path, i))
        elif isinstance(value, str) and SECRET_VALUES.search(value):
            raise ConfigError(
                f"{document.position(path)}: this value holds a secret",
                hint="name a key file or an environment variable instead",
            )

    walk(document.values, ())


def _config_error(document: Document, model: type[BaseModel], error: ValidationError) -> ConfigError:
    faults = []
    for detail in error.errors(include_url=False):
        of_key = detail["type"] == "extra_forbidden"
        path = _document_path(document.values, detail["loc"], missing=detail["type"] == "missing")
        position = document.position(path, of_key=of_key)
        faults.append((position.line, position.column, f"{position}: {_words(detail, path, model)}"))
    faults.sort()
    lines = list(dict.fromkeys(text for _, _, text in faults))
    if len(lines) > MOST_FAULTS:
        lines = [*lines[:MOST_FAULTS], f"and {len(lines) - MOST_FAULTS} more"]
    return ConfigError("\n".join(lines))


def _document_path(values: Any, loc: tuple[str | int, ...], *, missing: bool) -> KeyPath:
    """pydantic's place without the names of union members, which stand in no file."""
    path: list[str | int] = []
    current = values
    for i, step in enumerate(loc):
        if isinstance(current, dict) and step in current:
            current = current[step]
            path.append(step)
        elif isinstance(current, list) and isinstance(step, int) and step < len(current):
            current = current[step]
            path.append(step)
        elif missing and i == len(loc) - 1:
            path.append(step)
    return tuple(path)


_TYPE_NAMES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "path_type": "a path",
}

_BOUNDS = {
    "greater_than": ("gt", "above {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "below {}"),
    "less_than_equal": ("le", "{} or less"),
    "multiple_of": ("multiple_of", "multiples of {}"),
    "too_short": ("min_length", "lists of {} or more"),
    "too_long": ("max_length", "lists of {} or less"),
    "string_too_short": ("min_length", "{} characters or more"),
    "string_too_long": ("max_length", "{} characters or less"),
}


def _words(detail: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> str:
    kind, context = detail["type"], detail.get("ctx") or {}
    name = _name(path)
    found = _shown(detail["input"])
    if kind == "extra_forbidden":
        allowed = _fields_at(model, path[:-1])
        near = nearest(str(path[-1]), allowed)
        question = f" did you mean '{near}'?" if near else ""
        return f"key '{path[-1]}' is not known here;{question} allowed are: {', '.join(allowed)}"
    if kind == "missing":
        return f"key '{path[-1]}' is missing" + (f" in '{_name(path[:-1])}'" if len(path) > 1 else "")
    if kind in ("literal_error", "enum"):
        allowed = [entry.strip("'\"") for entry in re.split(r", | or ", str(context.get("expected", "")))]
        near = nearest(str(detail["input"]), allowed)
        question = f" did you mean '{near}'?" if near else ""
        return f"'{name}' is {found};{question} allowed are: {', '.join(allowed)}"
    if kind in _TYPE_NAMES:
        return f"'{name}' is {found}; it must be {_TYPE_NAMES[kind]}"
    if kind in _BOUNDS:
        key, form = _BOUNDS[kind]
        bound = context.get(key)
        if isinstance(detail["input"], list):
            found = f"a list of {len(detail['input'])}"
        return f"'{name}' is {found}; allowed are {form.format(bound)}"
    if kind == "string_pattern_mismatch":
        return f"'{name}' is {found}; it must look like {context.get('pattern')}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        discriminator = str(context.get("discriminator", "")).strip("'")
        allowed = _tags(model, discriminator)
        near = nearest(str(context.get("tag", "")), allowed)
        question = f" did you mean '{near}'?" if near else ""
        said = f"is '{context['tag']}'" if "tag" in context else "is missing"
        return f"'{name}.{discriminator}' {said};{question} allowed are: {', '.join(allowed)}"
    if kind in ("value_error", "assertion_error"):
        reason = str(context.get("error", detail["msg"]))
        return f"'{name}': {reason}" if name else reason
    return f"'{name}' is {found}: {detail['msg']}"


def _name(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= 60 else f"'{value[:57]}…'"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return str(value)


def _tags(model: type[BaseModel], discriminator: str) -> list[str]:
    """Values of the key that tells the members of a union apart."""
    tags: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found = node.get("discriminator")
            if isinstance(found, dict) and found.get("propertyName") == discriminator:
                tags.extend(found.get("mapping", {}))
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(model.model_json_schema())
    return list(dict.fromkeys(tags))


def _fields_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Names that the model allows at a place, found through its JSON schema (it already resolves unions and dicts)."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})

    def resolve(node: dict[str, Any]) -> list[dict[str, Any]]:
        if "$ref" in node:
            return resolve(definitions[node["$ref"].rsplit("/", 1)[1]])
        branches = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
        return [leaf for branch in branches for leaf in resolve(branch)] if branches else [node]

    nodes = resolve(schema)
    for step in path:
        following = []
        for node in nodes:
            if isinstance(step, int) and isinstance(node.get("items"), dict):
                following += resolve(node["items"])
            elif step in node.get("properties", {}):
                following += resolve(node["properties"][step])
            elif isinstance(node.get("additionalProperties"), dict):
                following += resolve(node["additionalProperties"])
        nodes = following
    names = [name for node in nodes for name in node.get("properties", {})]
    return list(dict.fromkeys(names))
