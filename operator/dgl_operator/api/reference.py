"""The tables of docs/reference/dgljob.md, made from the schema, the rules and the rights."""

from collections.abc import Iterator
from typing import Any

from dgl_operator.api import crd, rbac, rules

Rows = list[tuple[str, ...]]


def blocks() -> dict[str, str]:
    """Return the generated blocks of the page by name."""
    root = crd.schema()
    return {
        "spec": _table(("Field", "Type", "Default", "Bounds", "Meaning"), list(_fields(root, "spec"))),
        "status": _table(("Field", "Type", "Default", "Bounds", "Meaning"), list(_fields(root, "status"))),
        "rules": _table(("Where", "What is demanded"), _rules()),
        "columns": _table(("Column", "Shows", "From", "Wide only"), _columns()),
        "rights": _table(("Group", "Resources", "Verbs", "Why"), _rights()),
    }


def _fields(root: dict[str, Any], top: str) -> Iterator[tuple[str, ...]]:
    yield from _walk(root["properties"][top], top, required=())


def _walk(node: dict[str, Any], path: str, required: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each field below `node`, depth first, in the order of the models."""
    for key, child in node.get("properties", {}).items():
        yield _row(f"{path}.{key}", child, key in node.get("required", required))
        yield from _walk(child, f"{path}.{key}", ())
    if items := node.get("items"):
        yield from _walk(items, f"{path}[]", ())
    if values := node.get("additionalProperties"):
        yield from _walk(values, f"{path}.<role>", ())


def _row(path: str, node: dict[str, Any], required: bool) -> tuple[str, ...]:
    default = "" if node.get("default") in (None, "") else _code(node["default"])
    default = "required" if required else default
    return (_code(path), _type(node), default, _bounds(node), node.get("description", ""))


def _type(node: dict[str, Any]) -> str:
    if node.get("pattern") == crd.TIME:
        return "time"
    if crd.INT_OR_STRING in node:
        return "integer or string"
    if node["type"] == "array":
        return f"list of {_plural(node['items'])}"
    if "additionalProperties" in node:
        return f"map to {_type(node['additionalProperties'])}"
    return str(node["type"])


def _plural(node: dict[str, Any]) -> str:
    return f"{_type(node)}s"


BOUNDS = (
    *(("minimum", "at least"), ("maximum", "at most"), ("minItems", "entries at least")),
    ("maxItems", "entries at most"),
    *(("minLength", "length at least"), ("maxLength", "length at most")),
)


def _bounds(node: dict[str, Any]) -> str:
    if "enum" in node:
        return ", ".join(_code(value) for value in node["enum"])
    found = [f"{words} {node[key]}" for key, words in BOUNDS if key in node]
    return ", ".join(found + ([_code(node["pattern"])] if node.get("pattern", crd.TIME) != crd.TIME else []))


def _rules() -> Rows:
    where = [(rule.at + rule.field).removeprefix(".") for rule in rules.RULES]
    rows: Rows = [(_code(at), rule.message) for at, rule in zip(where, rules.RULES, strict=True)]
    fixed = (*rules.IMMUTABLE, *rules.IMMUTABLE_OPTIONAL)
    return rows + [(_code(f"spec.{field}"), rules.IMMUTABLE_MESSAGE) for field in fixed]


def _columns() -> Rows:
    return [
        (_code(name.upper()), description, _code(path), "yes" if priority else "")
        for name, _, path, priority, description in crd.COLUMNS
    ]


def _rights() -> Rows:
    return [
        (_code(rule.group or '""'), ", ".join(rule.resources), ", ".join(rule.verbs), rule.why)
        for rule in (*rbac.RULES, *rbac.OF_CLUSTER, *rbac.KUEUE, *rbac.KUEUE_OF_CLUSTER)
    ]


def _code(value: object) -> str:
    return f"`{value}`"


def _table(head: tuple[str, ...], rows: Rows) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(_plain(cell) for cell in line) + " |\n" for line in lines)


def _plain(cell: str) -> str:
    """Escape what Markdown would take for a column or a tag, but not inside of code."""
    cell = cell.replace("|", "\\|")
    return cell if cell.startswith("`") else cell.replace("<", "&lt;")
