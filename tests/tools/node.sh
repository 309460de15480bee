#!/usr/bin/env bash
# Runs a command where a real node may be: as root, in network, mount and process namespaces that end with it, with a cgroup and a
# directory of their own. Nothing is left on the machine, however the command ends.
#
#   node.sh --check [PROGRAM...]   say what is missing, and fail if something is; these programs are named as their packages
#   node.sh COMMAND...             run it; where something is missing, say so and do nothing
set -euo pipefail

missing=()
packages=()
need() { # program package
  command -v "$1" >/dev/null || { missing+=("$1"); packages+=("$2"); }
}
check() {
  local program
  [ "$(id -u)" = 0 ] || missing+=("root")
  for program in "$@"; do need "$program" "$program"; done
  need containerd containerd
  need ctr containerd
  need runc runc
  need ip iproute2
  need unshare util-linux
  for plugin in bridge host-local loopback; do
    [ -x "/usr/lib/cni/$plugin" ] || [ -x "/opt/cni/bin/$plugin" ] || { missing+=("CNI plugin $plugin"); packages+=(containernetworking-plugins); }
  done
  if [ "${#missing[@]}" = 0 ]; then
    unshare --net --mount --pid --fork --mount-proc ip link set lo up 2>/dev/null || missing+=("the right to make namespaces")
    new_cgroup 2>/dev/null || missing+=("writable cgroups")
    end_cgroup
  fi
  if [ "${#missing[@]}" = 0 ]; then return 0; fi
  local list
  list="$(printf '%s, ' "${missing[@]}")"
  echo "node: SKIPPED: no real node on this machine, nothing of it was tested. Missing: ${list%, }" >&2
  if [ "${#packages[@]}" != 0 ]; then
    echo "node: packages (Debian): $(printf '%s\n' "${packages[@]}" | sort -u | tr '\n' ' ')" >&2
  fi
  return 1
}

cgroup="fleetagent-node-$$"
# Both versions: one hierarchy, or one for each controller.
hierarchies() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup
  else for one in /sys/fs/cgroup/*/; do [ ! -L "${one%/}" ] && echo "${one%/}"; done; fi
}
new_cgroup() { hierarchies | while read -r one; do mkdir "$one/$cgroup" || exit 1; done; }
end_cgroup() {
  hierarchies | while read -r one; do
    if [ -d "$one/$cgroup" ]; then find "$one/$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
  done
}

if [ "${1:-}" = --check ]; then shift; check "$@"; exit; fi
check || exit 0

work="$(mktemp -d "${TMPDIR:-/tmp}/fleetagent-node-XXXXXX")"
finish() {
  end_cgroup
  if [ -z "${KEEP:-}" ] || [ "$KEEP" = 0 ]; then rm -rf --one-file-system "$work"; else echo "node: its files are in $work"; fi
}
trap finish EXIT
new_cgroup
mkdir "$work/tmp"
# Programs of this machine find servers by the names that pods know, too (the controller fetches charts), and registries to push images to.
{
  cat /etc/hosts
  echo "10.96.0.2 upstream.testbed.example charts.testbed.example registry.testbed.example"
  echo "10.96.0.3 registry.example canary.example"
} >"$work/hosts"
export FLEETAGENT_NODE_CGROUP="/$cgroup" TMPDIR="$work/tmp" FLEETAGENT_NODE_HOSTS="$work/hosts"
# The shell stays as the first process, to reap what is left to it.
unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private bash -c '
  set -euo pipefail
  ip link set lo up
  mount --bind "$FLEETAGENT_NODE_HOSTS" /etc/hosts
  "$@" && code=0 || code=$?
  exit "$code"' node "$@"
