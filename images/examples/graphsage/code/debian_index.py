"""Read a Debian package index (a `Packages` file): standard library only.

Format: deb-control(5) paragraphs; relations as in the Debian policy, chapter 7.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

RELATIONS = ("depends", "recommends", "suggests", "enhances")
"""Fields that say how packages belong together; Pre-Depends counts as depends."""

_FIELDS = {
    "Pre-Depends": "depends",
    "Depends": "depends",
    "Recommends": "recommends",
    "Suggests": "suggests",
    "Enhances": "enhances",
}
_NAME = re.compile(r"\s*([a-z0-9][a-z0-9.+-]*)")


class BadIndex(ValueError):
    """The text is not a package index; the message names the paragraph and what is wrong."""


@dataclass(frozen=True)
class Package:
    """One binary package.

    Attributes:
        name: Its name.
        section: Its section, such as `python`; the area before a slash is dropped.
        maintainer: Who maintains it, without the mail address.
        tags: Its debtags, such as `role::shared-lib`.
        provides: Virtual packages that it provides.
        relations: Relation to the names it mentions, alternatives included, each once, in their order.
    """

    name: str
    section: str
    maintainer: str
    tags: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    relations: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_index(lines: Iterable[str]) -> list[Package]:
    """Parse an index; of a package that comes twice the first paragraph counts.

    Returns:
        The packages sorted by name, so that node numbers do not depend on the order of the file.

    Raises:
        BadIndex: a paragraph lacks a field that every package has, or there is no paragraph.
    """
    found: dict[str, Package] = {}
    for number, paragraph in enumerate(_paragraphs(lines), start=1):
        package = _package(paragraph, number)
        found.setdefault(package.name, package)
    if not found:
        raise BadIndex("expected a package index, found no paragraph")
    return [found[name] for name in sorted(found)]


def related(field_value: str) -> tuple[str, ...]:
    """The package names in a relation field, alternatives included, versions and architectures dropped."""
    names = (_NAME.match(term) for term in re.split("[,|]", field_value))
    return tuple(dict.fromkeys(match.group(1) for match in names if match))


def _paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        text = line.rstrip("\n")
        if not text:
            if fields:
                yield fields
            fields, last = {}, ""
        elif text[0] in " \t":
            fields[last] = fields.get(last, "") + text
        else:
            last, _, value = text.partition(":")
            fields[last] = value.strip()
    if fields:
        yield fields


def _package(fields: dict[str, str], number: int) -> Package:
    missing = [name for name in ("Package", "Section", "Maintainer") if not fields.get(name)]
    if missing:
        raise BadIndex(f"paragraph {number}: expected a package, it has no {' and no '.join(missing)}")
    return Package(
        name=fields["Package"],
        section=fields["Section"].rpartition("/")[2],
        maintainer=fields["Maintainer"].partition("<")[0].strip().strip('"'),
        tags=tuple(sorted({tag.strip() for tag in fields.get("Tag", "").split(",") if tag.strip()})),
        provides=related(fields.get("Provides", "")),
        relations=_relations(fields),
    )


def _relations(fields: dict[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, relation in _FIELDS.items():
        if value := fields.get(name):
            found[relation] = tuple(dict.fromkeys(found.get(relation, ()) + related(value)))
    return found
