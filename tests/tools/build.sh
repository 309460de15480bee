#!/usr/bin/env bash
# Builds the Go programs the test bed runs (API server, etcd, helm, ...) into a cache outside the checkout.
# Each directory beside this script, and ../reference/engine, engine-speed and kustomize, is one pinned Go module, kept once built below
#   ${XDG_CACHE_HOME:-$HOME/.cache}/fleetagent-testbed/<module>-<hash of go.mod, go.sum, its own sources and Go's version>/
# and never built again; the test bed (tests/src/tools.rs) computes the same path. Two runs at once are safe: one builds,
# the other waits, and a directory appears only when it is complete.
#
#   build.sh             build what is missing
#   build.sh --demo      build what the demo needs
#   build.sh --node      build what a real node needs as well, and Fleet's own programs from the checkout that FLEET names
#   build.sh --list      print the directory of each module, without building
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/fleetagent-testbed"
kubernetes_version=v1.36.3
IFS=. read -r major minor _ <<<"${kubernetes_version#v}"
version_package=k8s.io/component-base/version

# module | binary=package ... | extra linker flags
kubernetes_flags="-X $version_package.gitVersion=$kubernetes_version -X $version_package.gitMajor=$major -X $version_package.gitMinor=$minor"
modules=(
  "etcd|etcd=go.etcd.io/etcd/server/v3|"
  "kubernetes|kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager kube-scheduler=k8s.io/kubernetes/cmd/kube-scheduler kubectl=k8s.io/kubernetes/cmd/kubectl|$kubernetes_flags"
  "kwok|kwok=sigs.k8s.io/kwok/cmd/kwok|"
  "registry|registry=github.com/distribution/distribution/v3/cmd/registry|"
  "helm4|helm4=helm.sh/helm/v4/cmd/helm|-X helm.sh/helm/v4/internal/version.version=v4.3.1"
  "helm3|helm3=helm.sh/helm/v3/cmd/helm|-X helm.sh/helm/v3/internal/version.version=v3.22.0"
  "engine|engine=.|"
  "engine-speed|engine-speed=.|"
  "kustomize|kustomize-reference=.|"
)
demo_modules="etcd kubernetes kwok registry helm3"
node_modules=(
  "kubelet|kubelet=k8s.io/kubernetes/cmd/kubelet|$kubernetes_flags"
  "pause|pause=.|"
)

source_of() { # module
  if [ -d "$1" ]; then echo "$1"; else echo "../reference/$1"; fi
}

directory_of() { # module
  local hash
  hash="$(cd "$(source_of "$1")" && shopt -s nullglob && { cat go.mod go.sum ./*.go; go env GOVERSION; } | sha256sum | cut -c1-16)"
  echo "$cache/$1-$hash"
}

build() { # module binaries ldflags
  local module="$1" binaries="$2" ldflags="$3" directory started work entry
  directory="$(directory_of "$module")"
  if [ -d "$directory" ]; then return; fi
  started=$SECONDS
  work="$(mktemp -d "$cache/.building-$module-XXXXXX")"
  for entry in $binaries; do
    echo "tools: building ${entry%%=*}"
    (cd "$(source_of "$module")" && CGO_ENABLED=0 go build -v -trimpath -buildvcs=false -mod=readonly \
      -ldflags "-s -w $ldflags" -o "$work/${entry%%=*}" "${entry#*=}") 2>&1 |
      awk '/^go: downloading/ { if (++d % 50 == 0) print "tools:   " d " modules downloaded"; fflush(); next }
           /^[a-z0-9.]+(\/[^ ]+)*$/ { if (++n % 250 == 0) print "tools:   " n " packages compiled"; fflush(); next }
           { print; fflush() }'
  done
  mv -T "$work" "$directory"
  echo "tools: $module built in $((SECONDS - started)) s"
}

# Fleet builds from a checkout only: its go.mod replaces modules by directories beside it, which Go ignores in a module that is required. Its
# programs and charts are kept by their commit; without FLEET those of the pinned commit are taken, if they were built before.
fleet_commit="$(cat fleet.commit)"
fleet_programs=(fleetcontroller fleetagent fleetcli)

build_fleet() {
  local commit="$fleet_commit" directory started work program
  if [ -n "${FLEET:-}" ]; then commit="$(git -C "$FLEET" rev-parse HEAD)"; fi
  directory="$cache/fleet-$commit"
  if [ ! -d "$directory" ] && [ -n "${FLEET:-}" ]; then
    started=$SECONDS
    work="$(mktemp -d "$cache/.building-fleet-XXXXXX")"
    for program in "${fleet_programs[@]}"; do
      echo "tools: building $program of Fleet, from $FLEET"
      (cd "$FLEET" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -mod=readonly -ldflags "-s -w" -o "$work/$program" "./cmd/$program")
    done
    cp -r "$FLEET/charts" "$work/charts"
    mv -T "$work" "$directory"
    echo "tools: Fleet built in $((SECONDS - started)) s"
  fi
  if [ ! -d "$directory" ]; then
    echo "tools: there are no programs of Fleet ($fleet_commit): name a checkout of github.com/rancher/fleet by FLEET=DIRECTORY" >&2
    return 1
  fi
}

mkdir -p "$cache"
if [ "${1:-}" = --list ]; then
  for row in "${modules[@]}" "${node_modules[@]}"; do directory_of "${row%%|*}"; done
  exit
fi
exec 9>"$cache/.lock"
if command -v flock >/dev/null && ! flock -n 9; then
  echo "tools: another build is running, waiting for it"
  flock 9
fi
started=$SECONDS
if [ "${1:-}" = --node ]; then modules+=("${node_modules[@]}"); fi
for row in "${modules[@]}"; do
  IFS='|' read -r module binaries ldflags <<<"$row"
  if [ "${1:-}" = --demo ] && [[ " $demo_modules " != *" $module "* ]]; then continue; fi
  build "$module" "$binaries" "$ldflags"
done
if [ "${1:-}" = --node ]; then build_fleet; fi
echo "tools: ready in $cache ($((SECONDS - started)) s)"
