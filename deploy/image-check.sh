#!/usr/bin/env bash
# Builds the image of the last commit twice, in two directories that share nothing but the downloaded sources, and holds what came out
# against each other and against the size it may have.
#
#   deploy/image-check.sh OUTPUT [arguments of the image's builder]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Programs and authorities, compressed.
max_mib=20

fail() { echo "image-check: $1" >&2; exit 1; }

output="$(realpath -m "${1:?where do the archives go?}")"
shift
REVISION="$(git rev-parse HEAD)"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export REVISION SOURCE_DATE_EPOCH
unset CARGO_TARGET_DIR

work="$(mktemp -d)"
trap 'for one in first second; do git worktree remove --force "$work/$one" 2>/dev/null || true; done; rm -rf "$work"' EXIT
for one in first second; do
  echo "image-check: the $one build of ${REVISION:0:7}, in $work/$one"
  git worktree add --quiet --detach "$work/$one" "$REVISION"
  (cd "$work/$one" && cargo run --quiet --locked --package image -- "$@" --output "$output/$one") | tee "$work/$one.log"
  git worktree remove --force "$work/$one"
done
digest() { sed -n 's/^image: digest //p' "$work/$1.log"; }
[ -n "$(digest first)" ] || fail "no digest was told"
[ "$(digest first)" = "$(digest second)" ] || fail "two builds, two digests: $(digest first) and $(digest second)"
for bill in "$output"/first/*.cdx.json; do
  cmp "$bill" "$output/second/${bill##*/}" || fail "two builds, two bills of materials"
done
count="$(ls "$output"/first/*.cdx.json | wc -l)"
bytes="$(stat --format=%s "$output"/first/*.tar)"
[ "$((bytes))" -le "$((count * max_mib << 20))" ] || fail "$bytes bytes for $count architectures: more than $max_mib MiB each"
echo "image-check: $(digest first) both times, $bytes bytes for $count architectures"
