#!/usr/bin/env bash
# One TLS stack only: rustls with ring. A second one would panic at the first handshake.
set -euo pipefail
if cargo tree --locked -e normal --prefix none | grep -E '^(aws-lc|native-tls|openssl-sys)'; then
  echo "error: a second TLS stack came in through the crates above" >&2
  exit 1
fi
