#!/bin/sh
# Install ParMETIS from Debian's non-free section, only for a builder who accepts its licence: research
# of non-profit institutions and the US government, no redistribution. An image with it must not be
# published. ACCEPT_PARMETIS_LICENSE=yes says so. `.ci/setup` runs this on a machine that runs the tests.
set -eu

case ${ACCEPT_PARMETIS_LICENSE:-} in
'') exit 0 ;;
yes) ;;
*)
    echo "ACCEPT_PARMETIS_LICENSE: expected yes or nothing, got '$ACCEPT_PARMETIS_LICENSE'" >&2
    exit 2
    ;;
esac

# This system's own mirror with one more section, in files of this installation only: apt's stay as they are.
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
chmod 0755 "$own"
mkdir "$own/sources" "$own/lists"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [ -f "$file" ] || continue
    sed -e 's/^Components:.*/& non-free/' -e '/^deb /s/$/ non-free/' "$file" >"$own/sources/${file##*/}"
done
if [ -f "$own/sources/sources.list" ]; then
    mv "$own/sources/sources.list" "$own/sources/debian-one-line.list"
fi

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dir::Etc::sourcelist=/dev/null \
        -o Dir::Etc::sourceparts="$own/sources" -o Dir::State::lists="$own/lists" "$@"
}
apt update
apt install --no-install-recommends --yes libparmetis4.0
apt clean
