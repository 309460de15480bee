#!/usr/bin/env bash
# Signs a chart with the real cosign, helm and gpg in every way that counts and in some that do not, and writes what they leave into
# signatures/tests/specimens, for tests to hold our checks against. `make record-signatures` runs it; cosign takes some five minutes to
# build the first time. All keys are made here and thrown away; private ones are not kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/fleetagent-testbed"
specimens="$(cd ../.. && pwd)/signatures/tests/specimens"
registry=127.0.0.1:5599 sigstore=127.0.0.1:5601 other=127.0.0.1:5602
work="$(mktemp -d)"
started=()
finish() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  GNUPGHOME="$work/gnupg" gpgconf --kill all 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# Kept once built, as the test bed's other programs are.
tool() { # module binary package
  local directory
  directory="$cache/$1-$(cd "$1" && { cat go.mod go.sum ./*.go 2>/dev/null || true; go env GOVERSION; } | sha256sum | cut -c1-16)"
  if [ ! -x "$directory/$2" ]; then
    echo "record-signatures: building $2" >&2
    (cd "$1" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$directory/$2" "$3")
  fi
  echo "$directory/$2"
}
cosign="$(tool cosign cosign github.com/sigstore/cosign/v3/cmd/cosign)"
throwaway="$(tool sigstore sigstore .)"
built() { ./build.sh --list | grep "/$1-[0-9a-f]*\$"; }
helm="$(built helm4)/helm4"
serve="$(built registry)/registry"

rm -rf "$specimens"
mkdir -p "$specimens" "$work/gnupg"
chmod 700 "$work/gnupg"
export GNUPGHOME="$work/gnupg" COSIGN_PASSWORD="" SIGSTORE_REKOR_PUBLIC_KEY="" HOME="$work"

cat >"$work/registry.yaml" <<REGISTRY
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: $registry}
REGISTRY
"$serve" serve "$work/registry.yaml" >"$work/registry.log" 2>&1 & started+=($!)
"$throwaway" serve "$sigstore" "$specimens/root.json" & started+=($!)
"$throwaway" serve "$other" "$specimens/other-root.json" & started+=($!)
for _ in $(seq 100); do (exec 3<>/dev/tcp/${registry/:/\/} && exec 3<>/dev/tcp/${other/:/\/} && exec 3<>/dev/tcp/${sigstore/:/\/}) 2>/dev/null && break; sleep 0.1; done

# The chart, in two versions; the second is the one that is asked for.
mkdir -p "$work/web/templates"
printf 'apiVersion: v2\nname: web\nversion: 1.0.0\n' >"$work/web/Chart.yaml"
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "{{ .Release.Name }}-web"}\ndata: {version: "{{ .Chart.Version }}"}\n' >"$work/web/templates/map.yaml"
"$helm" package --destination "$work" "$work/web" >/dev/null
sed -i 's/1.0.0/1.1.0/' "$work/web/Chart.yaml"
"$helm" package --destination "$specimens" "$work/web" >/dev/null
chart="$specimens/web-1.1.0.tgz"

# Each case has a repository of its own, with the chart in it; its digest is the same everywhere.
push() { # repository archive
  "$helm" push "$2" "oci://$registry/$1" --plain-http 2>&1 | sed -n 's/^Digest: //p'
}
digest="$(push keep "$chart")"
copy() { # repository: the very manifest, so that signatures fit everywhere
  "$helm" push "$chart" "oci://$registry/$1" --plain-http >/dev/null 2>&1
  curl -sf -X PUT -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' --data-binary "@$specimens/manifest.json" "http://$registry/v2/$1/web/manifests/1.1.0"
}
curl -sf -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$registry/v2/keep/web/manifests/$digest" >"$specimens/manifest.json"
curl -sf "http://$registry/v2/keep/web/blobs/$(sed -E 's/.*"config":\{[^}]*"digest":"([^"]*)".*/\1/' "$specimens/manifest.json")" >"$specimens/config.json"
echo "$digest" >"$specimens/manifest.digest"
old="$(push charts "$work/web-1.0.0.tgz")"
copy charts

# Keys: cosign's own, and those that it imports.
cd "$work"
"$cosign" generate-key-pair --output-key-prefix key 2>/dev/null
"$cosign" generate-key-pair --output-key-prefix other 2>/dev/null
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.pem 2>/dev/null
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out p384.pem
openssl genpkey -algorithm ED25519 -out ed25519.pem
for key in rsa p384 ed25519; do "$cosign" import-key-pair --key $key.pem --output-key-prefix $key 2>/dev/null; done
cp key.pub other.pub rsa.pub p384.pub ed25519.pub "$specimens"
"$throwaway" config "$sigstore" all >all.json
"$throwaway" config "$other" all >other-all.json
"$throwaway" config "$sigstore" log >log.json
"$throwaway" config "$sigstore" nothing >nothing.json
issuer=https://issuer.test.invalid
for identity in release@test.invalid other@test.invalid; do "$throwaway" token $identity $issuer >"$identity"; done
"$throwaway" token "https://git.test.invalid/charts/.github/workflows/release.yaml@refs/heads/main" $issuer >workflow
"$throwaway" token release@test.invalid https://other.test.invalid >other-issuer

bundle() { # case, cosign's arguments
  local name="$1"; shift
  copy "$name"
  "$cosign" sign -y --allow-http-registry "$@" "$registry/$name/web@$digest" >"$name.log" 2>&1 || { cat "$name.log"; exit 1; }
  "$throwaway" dump "$registry" "$name/web" "$digest" >"$specimens/$name.json"
}
attached() { # case, cosign's arguments
  local name="$1"; shift
  bundle "$name" --new-bundle-format=false --use-signing-config=false "$@"
}
keyless=(--fulcio-url "http://$sigstore" --rekor-url "http://$sigstore" --trusted-root "$specimens/root.json")

attached attached-key --key key.key --tlog-upload=false
attached attached-rsa --key rsa.key --tlog-upload=false
attached attached-p384 --key p384.key --tlog-upload=false
attached attached-ed25519 --key ed25519.key --tlog-upload=false
attached attached-key-log --key key.key --rekor-url "http://$sigstore" --trusted-root "$specimens/root.json"
attached attached-other-key --key other.key --tlog-upload=false
attached attached-other-name --key key.key --tlog-upload=false --sign-container-identity "$registry/elsewhere/web"
attached attached-identity "${keyless[@]}" --identity-token release@test.invalid
bundle bundle-key --key key.key --signing-config nothing.json
bundle bundle-rsa --key rsa.key --signing-config nothing.json
bundle bundle-p384 --key p384.key --signing-config nothing.json
bundle bundle-ed25519 --key ed25519.key --signing-config nothing.json
bundle bundle-key-log --key key.key --signing-config log.json --trusted-root "$specimens/root.json"
bundle bundle-other-key --key other.key --signing-config nothing.json
bundle bundle-identity --signing-config all.json --trusted-root "$specimens/root.json" --identity-token release@test.invalid
bundle bundle-workflow --signing-config all.json --trusted-root "$specimens/root.json" --identity-token workflow
bundle bundle-other-identity --signing-config all.json --trusted-root "$specimens/root.json" --identity-token other@test.invalid
bundle bundle-other-issuer --signing-config all.json --trusted-root "$specimens/root.json" --identity-token other-issuer
bundle bundle-other-root --signing-config other-all.json --trusted-root "$specimens/other-root.json" --identity-token release@test.invalid
# Two signatures each, of which one is the other key's.
"$cosign" sign -y --allow-http-registry --new-bundle-format=false --use-signing-config=false --tlog-upload=false --key other.key "$registry/attached-key/web@$digest" >/dev/null 2>&1
"$throwaway" dump "$registry" attached-key/web "$digest" >"$specimens/attached-both.json"
# The version before this one, signed as well: what is replayed.
digest_now="$digest" digest="$old"
copy() { :; }
bundle charts --key key.key --signing-config nothing.json
attached charts --key key.key --tlog-upload=false
mv "$specimens/charts.json" "$specimens/old.json"
digest="$digest_now"
# A statement about the chart that is no signature.
echo '{"predicate": "scanned"}' >predicate.json
"$helm" push "$chart" "oci://$registry/attested" --plain-http >/dev/null 2>&1
curl -sf -X PUT -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' --data-binary "@$specimens/manifest.json" "http://$registry/v2/attested/web/manifests/1.1.0"
"$cosign" attest -y --allow-http-registry --key key.key --signing-config nothing.json --predicate predicate.json --type custom "$registry/attested/web@$digest" >attest.log 2>&1 || { cat attest.log; exit 1; }
"$throwaway" dump "$registry" attested/web "$digest" >"$specimens/bundle-attested.json"

# Provenance files: helm signs with keys that gpg made.
gpg() { command gpg --batch --quiet --no-tty --pinentry-mode loopback --passphrase "" "$@" 2>>gpg.log; }
made() { # name, gpg's arguments
  local name="$1"; shift
  gpg "$@"
  gpg --armor --export "$name@test.invalid" >"$specimens/$name.asc"
}
packaged() { # case key
  command gpg --batch --quiet --no-tty --pinentry-mode loopback --passphrase "" --export-secret-keys "$2@test.invalid" >secret.gpg 2>>gpg.log
  mkdir -p packaged && rm -f packaged/*
  cp "$chart" packaged/
  "$helm" package --sign --key "$2" --keyring secret.gpg --destination packaged "$work/web" >/dev/null
  cp packaged/web-1.1.0.tgz "$specimens/$1.tgz"
  cp packaged/web-1.1.0.tgz.prov "$specimens/$1.prov"
}
made rsa-maintainer --quick-gen-key "rsa-maintainer@test.invalid" rsa2048 sign never
made ed25519-maintainer --quick-gen-key "ed25519-maintainer@test.invalid" ed25519 sign never
made stranger --quick-gen-key "stranger@test.invalid" rsa2048 sign never
gpg --quick-gen-key "subkey-maintainer@test.invalid" ed25519 cert never
subkey="$(command gpg --with-colons --list-keys subkey-maintainer@test.invalid 2>/dev/null | awk -F: '$1 == "fpr" { print $10; exit }')"
gpg --quick-add-key "$subkey" ed25519 sign never
gpg --armor --export subkey-maintainer@test.invalid >"$specimens/subkey-maintainer.asc"
packaged rsa rsa-maintainer
packaged ed25519 ed25519-maintainer
packaged stranger stranger
# What helm wrote, signed by gpg: by a subkey, with an end, by a key that has ended, was revoked.
text() { awk '/^-----BEGIN PGP SIGNATURE/ { exit } found { print } /^$/ { found = 1 }' "$specimens/rsa.prov"; }
text >signed.txt
clearsigned() { # case key, gpg's arguments
  local name="$1" key="$2"; shift 2
  gpg "$@" --local-user "$key@test.invalid" --clearsign --output "$specimens/$name.prov" signed.txt
}
clearsigned subkey subkey-maintainer
clearsigned sha1 rsa-maintainer --digest-algo SHA1
clearsigned ended-signature rsa-maintainer --faked-system-time 20250101T000000! --default-sig-expire 1d --ignore-time-conflict --ignore-valid-from || true
made ended --faked-system-time 20240101T000000! --quick-gen-key "ended@test.invalid" rsa2048 sign 1y
clearsigned ended ended --faked-system-time 20240601T000000!
made revoked --quick-gen-key "revoked@test.invalid" rsa2048 sign never
clearsigned revoked revoked
# Keys on curves that hash with another function than their curve's, for their own names too; and one of whose two names one is revoked.
for curve in 256 384; do
  made p$curve-maintainer --cert-digest-algo SHA512 --quick-gen-key "p$curve-maintainer@test.invalid" nistp$curve sign never
  clearsigned p$curve p$curve-maintainer --digest-algo SHA512
done
gpg --quick-gen-key "two-names@test.invalid" rsa2048 sign never
two="$(command gpg --with-colons --list-keys two-names@test.invalid 2>/dev/null | awk -F: '$1 == "fpr" { print $10; exit }')"
gpg --quick-add-uid "$two" "former-name@test.invalid"
gpg --quick-revoke-uid "$two" "former-name@test.invalid"
gpg --armor --export "$two" >"$specimens/two-names.asc"
clearsigned two-names two-names
fingerprint="$(command gpg --with-colons --list-keys revoked@test.invalid 2>/dev/null | awk -F: '$1 == "fpr" { print $10; exit }')"
cp "$specimens/revoked.asc" "$specimens/revoked-before.asc"
sed 's/^:-----/-----/' "$GNUPGHOME/openpgp-revocs.d/$fingerprint.rev" | gpg --import
gpg --armor --export revoked@test.invalid >"$specimens/revoked.asc"
gpg --armor --export rsa-maintainer@test.invalid stranger@test.invalid ed25519-maintainer@test.invalid >"$specimens/keyring.asc"
echo "record-signatures: $(ls "$specimens" | wc -l) files in ${specimens#"$PWD"/}"
