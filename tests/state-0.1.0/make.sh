#!/usr/bin/env bash
# Makes the state folder that `crates/app/tests/earlier_state.rs` opens: what release 0.1.0
# leaves behind. Run it with the program of that release; a later program would not show
# whether an earlier state still opens.
#
#   tests/state-0.1.0/make.sh PATH-TO-CALLGATE-0.1.0
set -euo pipefail
callgate=$(realpath "$1")
folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill "${serve:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
export CALLGATE_STATE=$work/state
cp "$folder/callgate.toml" "$work/"
cd "$work"

"$callgate" trust
token=$("$callgate" token create app --tier-max 3)
printf '%s' "$token" > "$folder/token"
"$callgate" lease grant leased --ttl 1h
"$callgate" serve --port 7499 > serve.log 2>&1 &
serve=$!
until grep -q 'listening' serve.log; do sleep 0.1; done

rpc() {
    curl -s http://127.0.0.1:7499/rpc -H "Authorization: Bearer $token" \
        -H 'content-type: application/json' -d "{\"jsonrpc\":\"2.0\",\"id\":1,$1}"
    echo
}
rpc '"method":"copy","params":{"a":1},"callgate":{"idempotency_key":"small"}'
rpc '"method":"copy","params":{"n":9007199254740993},"callgate":{"idempotency_key":"large"}'
rpc '"method":"copy","params":{"n":1.0,"t":"é"},"callgate":{"idempotency_key":"real"}'
rpc '"method":"failing","params":{},"callgate":{"idempotency_key":"failed"}'
rpc '"method":"guarded","params":{"x":"granted"}'
approval=$("$callgate" --json approvals | python3 -c 'import json,sys; print(json.load(sys.stdin)["approvals"][0]["id"])')
"$callgate" approvals grant "$approval"
rpc '"method":"guarded","params":{"x":"granted"},"callgate":{"idempotency_key":"guarded"}'
rpc '"method":"guarded","params":{"x":"pending"}'
rpc '"method":"memory/append","params":{"text":"an earlier note"}'
rpc '"method":"planner/create_plan","params":{"title":"Release","user_request":"1. write tests\n2. fix bugs"}'
kill "$serve"
wait "$serve" || true
"$callgate" audit verify

rm -rf "$folder/state"
mkdir -p "$folder/state/journal"
for file in head.json head.pub signing.key token journal/00000000000000000001.seg; do
    cp "$CALLGATE_STATE/$file" "$folder/state/$file"
done
