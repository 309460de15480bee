#!/usr/bin/env bash
# Fetches the published charts of corpus.txt into the cache, each checked against its digest. Present ones are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

directory="${XDG_CACHE_HOME:-$HOME/.cache}/fleetagent-testbed/corpus"
mkdir -p "$directory"
number=0
count="$(grep -vc '^#' corpus.txt)"
while read -r digest repository commit path; do
  [[ "$digest" == \#* ]] && continue
  number=$((number + 1))
  file="$directory/$(basename "$path")"
  if [ -f "$file" ]; then continue; fi
  echo "corpus: [$number/$count] $(basename "$path")"
  part="$(mktemp "$directory/.part-XXXXXX")"
  curl --fail --silent --show-error --location --retry 3 --max-time 300 --output "$part" \
    "https://raw.githubusercontent.com/$repository/$commit/${path//+/%2B}" || { rm -f "$part"; exit 1; }
  if ! echo "$digest  $part" | sha256sum --check --status; then
    echo "corpus: $path does not have the digest $digest" >&2
    rm -f "$part"
    exit 1
  fi
  mv "$part" "$file"
done <corpus.txt
echo "corpus: $count charts in $directory"
