#!/usr/bin/env bash
# Pushes a release that was built and its chart, signs both, and attaches the bills of materials. deploy/release.sh --push calls it; where that
# was interrupted it is run again by itself.
#
#   deploy/publish.sh target/release-artifacts registry.example/fleetagent 0.1.0
#
# COSIGN_FLAGS go to cosign where a key signs and not whoever is logged in: "--key release.key".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "publish: $1" >&2; exit 1; }

artifacts="${1:?where are the archive and the bills of materials?}"
name="${2:?where does it go?}"
version="${3:?which version?}"
for tool in skopeo cosign helm; do command -v "$tool" >/dev/null || fail "there is no $tool"; done
archives=("$artifacts"/*.tar)
[ "${#archives[@]}" = 1 ] && [ -f "${archives[0]}" ] || fail "there has to be one archive in $artifacts"
bills=("$artifacts"/*.cdx.json)
[ -f "${bills[0]}" ] || fail "there are no bills of materials in $artifacts"
read -ra flags <<<"${COSIGN_FLAGS:-}"

skopeo copy --all --digestfile "$artifacts/digest" "oci-archive:${archives[0]}" "docker://$name:$version"
digest="$(<"$artifacts/digest")"
cosign sign --yes --recursive "${flags[@]}" "$name@$digest"
for bill in "${bills[@]}"; do
  cosign attest --yes "${flags[@]}" --type cyclonedx --predicate "$bill" "$name@$digest"
done
helm package deploy/fleet-agent --destination "$artifacts"
charts="${name%/*}/charts"
chart="$(helm push "$artifacts/fleet-agent-$version.tgz" "oci://$charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')"
[ -n "$chart" ] || fail "helm named no digest of the chart"
cosign sign --yes "${flags[@]}" "$charts/fleet-agent@$chart"
echo "publish: $name:$version is $digest, its chart $charts/fleet-agent:$version is $chart"
