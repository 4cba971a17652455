#!/usr/bin/env bash
# Installs the Debian packages that are missing, or says how to when we are not root.
set -euo pipefail

# A program that is there by other means is as good as its package.
present() {
  command -v "$1" >/dev/null && return
  # The server's programs are not named as their package, and Debian keeps them off the PATH.
  [ "$1" = postgresql ] && { command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; } >/dev/null
}

missing=()
for package in "$@"; do
  present "$package" && continue
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' && continue
  missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}; install them with your system's package manager" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "missing: ${missing[*]}; install them with: sudo sh -c '$line'" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
