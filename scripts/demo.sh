#!/usr/bin/env bash
# The whole story of one pull secret, against a real registry (docker-registry) and a real client (skopeo).
# usage: demo.sh <path of the hyperfleet-credentials binary>
set -euo pipefail

BINARY=$(realpath "$1")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/hyperfleet-demo.XXXXXX")
CLUSTER=cls-demo
IMAGE=team/app:v1
FAILURES=$WORK/failures
PULLS=$WORK/pulls
PIDS=()

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
note() { printf '   %s\n' "$*"; }

stop() {
  touch "$WORK/stop"
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$WORK"
}
trap stop EXIT
fail() {
  printf '\nthe demo failed: %s\n' "$*" >&2
  tail -n 20 "$WORK/service.log" "$WORK/registry.log" 2>/dev/null >&2 || true
  exit 1
}

# Waits until a command succeeds.
await() {
  local what=$1; shift
  for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
  fail "$what did not happen in time"
}

cd "$WORK"
mkdir data && chmod 700 data
: > "$FAILURES"; : > "$PULLS"

step "1. A container registry"
# Somebody else's user is in the file already, and has to be left alone.
FOREIGN='somebody-else:$2b$05$YiR.SrBBYMCyoJPnN4ulWu5S6tGZ.gQYDdRrqHSOH7oW4QGqYDLhm'
echo "$FOREIGN" > data/registry.htpasswd
start_registry() {
  PORT=$((20000 + RANDOM % 20000))
  REGISTRY=127.0.0.1:$PORT
  cat > registry.yml <<YAML
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $WORK/images}}
http: {addr: $REGISTRY, secret: demo}
auth: {htpasswd: {realm: demo, path: $WORK/data/registry.htpasswd}}
YAML
  docker-registry serve registry.yml > registry.log 2>&1 &
  local pid=$!
  for _ in $(seq 50); do
    kill -0 $pid 2>/dev/null || return 1
    curl -s -o /dev/null "http://$REGISTRY/v2/" && { PIDS+=($pid); return 0; }
    sleep 0.1
  done
  return 1
}
for _ in 1 2 3 4 5; do start_registry && break; done
curl -s -o /dev/null "http://$REGISTRY/v2/" || fail "the registry does not start"
note "docker-registry listens on $REGISTRY; its users stand in an htpasswd file"

step "2. The service, with nothing configured but the registry's address"
# Short periods, so that the story fits into a minute. The defaults are a day and an hour.
export HYPERFLEET_SERVER_PORT=0 HYPERFLEET_METRICS_PORT=0 \
  HYPERFLEET_REGISTRIES_LOCAL_HOST=$REGISTRY \
  HYPERFLEET_REGISTRIES_LOCAL_VERIFY_URL=http://$REGISTRY \
  HYPERFLEET_ROTATION_MIN_OVERLAP=5s HYPERFLEET_ROTATION_QUIET=2s
"$BINARY" serve --dev > service.log 2>&1 &
PIDS+=($!)
address() { jq -rR 'fromjson? | select(.message == "listening" and .listener == "api") | .address' service.log; }
listening() { [ -n "$(address)" ]; }
await "the service's listening" listening
API=http://$(address)
await "readiness" curl -sf "$API/readyz"
TOKEN=$(cat data/admin.token)
note "hyperfleet-credentials serve --dev is ready on $API"

PULL_SECRETS=$API/v1/clusters/$CLUSTER/pull-secrets
call() { # method, path below the pull secret, body
  curl -sS -X "$1" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    ${3:+-d "$3"} "$PULL_SECRETS$2"
}
fetch() { # what the adapter does: write the document where the cluster's nodes read it
  call GET "" | jq -c '.pull_secret' > auth.new && mv auth.new auth.json
}
pull() {
  skopeo copy -q --authfile "$1" --src-tls-verify=false "docker://$REGISTRY/$IMAGE" "dir:$2" 2>> "$FAILURES.log"
}
login() { curl -s -o /dev/null -w '%{http_code}' -u "$1" "http://$REGISTRY/v2/"; }
credential() { jq -r '.auths[].auth' "$1" | base64 -d; }
heartbeat() { # the cluster presents the credential itself
  curl -sS -X POST -H "Authorization: Basic $(jq -r '.auths[].auth' "$1")" "$PULL_SECRETS/heartbeats"
}

step "3. A pull secret for cluster $CLUSTER"
call POST "" > created.json
jq -e '.state == "active"' created.json >/dev/null || fail "no pull secret: $(cat created.json)"
note "POST: state $(jq -r .state created.json), generation $(jq -r .generation created.json), user $(jq -r '.credentials[0].username' created.json)"
fetch && cp auth.json generation-1.json
heartbeat generation-1.json > /dev/null

step "4. An image, pulled with it without pause from now on"
mkdir -p oci/blobs/sha256 rootfs && echo hello > rootfs/hello.txt
tar --owner=0 --group=0 --mtime='2020-01-01' -C rootfs -cf layer.tar . && gzip -n -c layer.tar > layer.tgz
blob() { local sum; sum=$(sha256sum "$1" | cut -d' ' -f1); cp "$1" "oci/blobs/sha256/$sum"; echo "$sum $(stat -c%s "$1")"; }
read -r LAYER LAYER_SIZE < <(blob layer.tgz)
printf '{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$(sha256sum layer.tar | cut -d' ' -f1)" > config.json
read -r CONFIG CONFIG_SIZE < <(blob config.json)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%s}]}' \
  "$CONFIG" "$CONFIG_SIZE" "$LAYER" "$LAYER_SIZE" > manifest.json
read -r MANIFEST MANIFEST_SIZE < <(blob manifest.json)
printf '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"org.opencontainers.image.ref.name":"v1"}}]}' \
  "$MANIFEST" "$MANIFEST_SIZE" > oci/index.json
skopeo copy -q --authfile auth.json --dest-tls-verify=false oci:oci:v1 "docker://$REGISTRY/$IMAGE"
(
  while [ ! -e "$WORK/stop" ] && [ ! -e "$WORK/stop-pulls" ]; do
    rm -rf pulled
    if pull auth.json pulled; then echo . >> "$PULLS"; else echo x >> "$FAILURES"; fi
  done
) &
PULLER=$!
PIDS+=($PULLER)
pulled_once() { [ -s "$PULLS" ]; }
await "the first pull" pulled_once
note "pulling $REGISTRY/$IMAGE again and again with the cluster's own document"

step "5. Rotate, while pulls go on"
call POST /rotations '{"reason": "manual"}' > rotation.json
ROTATION=$(jq -r .rotation_id rotation.json)
phase() { call GET "/rotations/$ROTATION" | jq -r .progress.phase; }
in_phase() { [ "$(phase)" = "$1" ]; }
await "the dual-credential period" in_phase dual_credential_period
note "$ROTATION: phase $(phase)"
call GET "" | jq -c .pull_secret > generation-2.json
note "the old one still works: $(login "$(credential generation-1.json)"), the new one too: $(login "$(credential generation-2.json)")"
heartbeat generation-1.json | jq -c '{credential, generation, refresh}' | sed 's/^/   a heartbeat with the old one: /'
sleep 3
in_phase dual_credential_period || fail "the rotation went on without proof"
note "no proof yet, so it waits: phase $(phase)"

step "6. The cluster takes the new one, and proves that it uses it"
cp generation-2.json auth.new && mv auth.new auth.json
running=$(wc -l < "$PULLS")
pull_ended() { [ "$(wc -l < "$PULLS")" -gt "$running" ]; }
await "the end of the pull that began with the old one" pull_ended
heartbeat auth.json | jq -c '{credential, generation, refresh}' | sed 's/^/   a heartbeat with the new one: /'
await "the end of the rotation" in_phase completed
note "adoption proved, the minimum overlap passed: phase $(phase)"
note "the old one is dead: $(login "$(credential generation-1.json)"), the new one works: $(login "$(credential generation-2.json)")"
[ "$(login "$(credential generation-1.json)")" = 401 ] || fail "the old credential still works"
[ "$(login "$(credential generation-2.json)")" = 200 ] || fail "the new credential does not work"

step "7. Delete, and nothing is left"
touch "$WORK/stop-pulls"; wait $PULLER || true
call DELETE "" > deleted.json
gone() { [ "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $TOKEN" "$PULL_SECRETS")" = 404 ]; }
await "the revocation" gone
note "the last one is dead: $(login "$(credential generation-2.json)")"
[ "$(login "$(credential generation-2.json)")" = 401 ] || fail "a deleted credential still works"
[ "$(cat data/registry.htpasswd)" = "$FOREIGN" ] || fail "the registry's file is not as it was"
note "the registry's file is as it was: only somebody-else is in it"

step "Done: $(wc -l < "$PULLS") pulls, $(wc -l < "$FAILURES") failed"
[ ! -s "$FAILURES" ] || fail "pulls failed: $(tail -n 3 "$FAILURES.log")"
