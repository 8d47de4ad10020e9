"""A small package index, made like the real one."""

SMALL = """\
Package: libgreen1
Source: green
Version: 1.0-1
Maintainer: Ada Lovelace <ada@example.org>
Section: libs
Provides: libgreen, libcolour (= 2)
Description: green library

Package: green-tools
Version: 1.0-1
Maintainer: Ada Lovelace <ada@example.org>
Pre-Depends: libgreen1 (>= 1.0)
Depends: libgreen1, python3:any (>= 3.9), mail-agent | postbox [amd64], nowhere
Recommends: libcolour
Suggests: green-doc, green-tools
Section: contrib/utils
Tag: role::program, interface::commandline,
 implemented-in::c

Package: green-doc
Version: 1.0-1
Maintainer: "Grace Hopper, PhD" <grace@example.org>
Enhances: green-tools
Section: doc
Tag: role::documentation

Package: python3
Version: 3.11
Maintainer: Debian Python Team <python@example.org>
Section: python

Package: postbox
Version: 2
Maintainer: Grace Hopper <grace@example.org>
Provides: mail-agent
Section: mail

Package: otherbox
Version: 2
Maintainer: Grace Hopper <grace@example.org>
Provides: mail-agent
Section: mail
"""


def many(count: int) -> str:
    """An index with two sections that names and relations tell apart, `count` packages in each."""
    paragraphs = []
    for i in range(count):
        for section, word, partner in (("alpha", "alef", "alefcore"), ("beta", "bet", "betcore")):
            depends = ", ".join(f"{word}-pack-{(i * 7 + k) % count}x" for k in range(1, 4))
            other = f"{word}-pack-{(i * 5 + 1) % count}x"
            paragraphs.append(
                f"Package: {word}-pack-{i}x\nMaintainer: {partner} team <{partner}@example.org>\n"
                f"Section: {section}\nDepends: {depends}\nRecommends: {other}\nSuggests: {other}\n"
                f"Tag: role::program, use::{i % 5}\n"
            )
    return "\n".join(paragraphs)


def half_nameless(count: int) -> str:
    """An index in which half of the packages can be told apart only by what they depend on."""
    paragraphs = []
    for i in range(count):
        section, word = ("alpha", "alef") if i % 2 else ("beta", "bet")
        depends = ", ".join(f"{word}-{(i + 2 * k) % count}x" for k in range(3))
        paragraphs.append(f"Package: {word}-{i}x\nMaintainer: All\nSection: {section}\n")
        paragraphs.append(f"Package: pack-{i}x\nMaintainer: All\nSection: {section}\nDepends: {depends}\n")
    return "\n".join(paragraphs)
