#!/usr/bin/env bash
# What the agent shows without a cluster, while the programs of one are built: meanwhile.sh AGENT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
agent="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

show() { printf '\n   $ fleetagent %s\n' "$*"; "$agent" "$@" | sed 's/^/   /'; }

echo "demo: the Go programs of two clusters are not built yet; here is what needs no cluster"
cat >"$work/values.yaml" <<'Y'
apiServerURL: https://upstream.example:6443
tokenName: import
labels:
  cluster: ${ .ClusterName }
  ring: ${ .ClusterLabels.ring }
Y
cat >"$work/cluster.yaml" <<'Y'
name: edge-1
labels: {ring: canary}
Y
echo
echo "   A chart, rendered as helm template does:"
show template fleet-agent deploy/fleet-agent --namespace cattle-fleet-system \
  --set apiServerURL=https://upstream.example:6443,tokenName=import --show-only templates/config.yaml
echo
echo "   What one cluster would get of values with \${ }:"
show values fleet-agent deploy/fleet-agent -f "$work/values.yaml" --cluster "$work/cluster.yaml"
echo
