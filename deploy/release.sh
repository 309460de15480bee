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
grep -q "^version: $version$" deploy/fleet-agent/Chart.yaml || fail "the tag is $tag, and the chart has another version"
if [ "$push" = --push ]; then
  for tool in skopeo cosign helm; do command -v "$tool" >/dev/null || fail "there is no $tool"; done
fi

artifacts=target/release-artifacts
rm -rf "$artifacts"
mkdir -p "$artifacts"
flags=()
for arch in "${archs[@]}"; do flags+=(--arch "$arch"); done
echo "release: building $name:$version twice"
deploy/image-check.sh "$artifacts/twice" "${flags[@]}" --name "$name" --tag "$version" | tee "$artifacts/build.log"
digest="$(sed -n 's/^image: digest //p' "$artifacts/build.log" | head -1)"
mv "$artifacts"/twice/first/* "$artifacts/"
rm -r "$artifacts/twice" "$artifacts/build.log"
echo "release: $name:$version is $digest, in $artifacts"

if [ "$push" != --push ]; then
  echo "release: nothing was pushed (--push does)"
  exit
fi
deploy/publish.sh "$artifacts" "$name" "$version"
