#!/usr/bin/env bash
# Builds the release of the tagged commit, twice, and pushes it where --push says so. See docs/releasing.md.
#
#   deploy/release.sh registry.example/fleetagent [--push]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name="${1:-}"
push="${2:-}"
archs=(amd64 arm64)

fail() { echo "release: $1" >&2; exit 1; }

[ -n "$name" ] || fail "where does it go? deploy/release.sh REGISTRY/NAME [--push]"
[ -z "$push" ] || [ "$push" = --push ] || fail "$push is not known"
[ -z "$(git status --porcelain)" ] || fail "the checkout is not what was committed"
tag="$(git describe --tags --exact-match 2>/dev/null)" || fail "the commit has no tag"
version="${tag#v}"
grep -q "^version = \"$version\"" Cargo.toml || fail "the tag is $tag, and Cargo.toml has another version"
grep -q "^appVersion: $version$" deploy/fleet-agent/Chart.yaml || fail "the tag is $tag, and the chart has another appVersion"
if [ "$push" = --push ]; then
  for tool in skopeo cosign helm; do command -v "$tool" >/dev/null || fail "there is no $tool"; done
fi

REVISION="$(git rev-parse HEAD)"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export REVISION SOURCE_DATE_EPOCH

work="$(mktemp -d)"
trap 'git worktree remove --force "$work/again" 2>/dev/null || true; rm -rf "$work"' EXIT
flags=()
for arch in "${archs[@]}"; do flags+=(--arch "$arch"); done
build() { # checkout output
  (cd "$1" && cargo run --quiet --locked --package image -- "${flags[@]}" --name "$name" --tag "$version" --output "$2")
}
echo "release: building $name:$version"
build . "$work/first" | tee "$work/first.log"
echo "release: building it again, elsewhere"
git worktree add --quiet --detach "$work/again" HEAD
build "$work/again" "$work/second" >"$work/second.log"
digest="$(sed -n 's/^image: digest //p' "$work/first.log")"
again="$(sed -n 's/^image: digest //p' "$work/second.log")"
[ -n "$digest" ] && [ "$digest" = "$again" ] || fail "two builds, two digests: $digest and $again"
mkdir -p target/release-artifacts
cp "$work"/first/* target/release-artifacts/
echo "release: $name:$version is $digest, in target/release-artifacts"

if [ "$push" != --push ]; then
  echo "release: nothing was pushed (--push does)"
  exit
fi
archive="$(ls target/release-artifacts/*.tar)"
skopeo copy --all "oci-archive:$archive" "docker://$name:$version"
cosign sign --yes "$name@$digest"
for bill in target/release-artifacts/*.cdx.json; do
  cosign attest --yes --type cyclonedx --predicate "$bill" "$name@$digest"
done
helm package deploy/fleet-agent --destination target/release-artifacts
helm push "target/release-artifacts/fleet-agent-$version.tgz" "oci://${name%/*}/charts"
