#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts a second node on this machine, on a network of its own with the first: run `make run` or `bin/nvpair serve` in
# one terminal and this, as root, in another; then `bin/nvpair call discovery:get-nodes` knows both. Ctrl+C ends it and
# removes the network.
set -euo pipefail
cd "$(dirname "$0")/../.."

name=nvpair-second
dir=$(mktemp -d)
cleanup() {
	ip netns del "$name" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

ip netns add "$name"
ip link add nvpair0 type veth peer name eth0 netns "$name"
ip addr add 192.168.177.1/24 brd + dev nvpair0
ip link set nvpair0 up
ip -n "$name" addr add 192.168.177.2/24 brd + dev eth0
ip -n "$name" link set eth0 up
ip -n "$name" link set lo up

echo "second node: 192.168.177.2, data directory $dir"
export NVPAIR_DATA_DIR=$dir
ip netns exec "$name" unshare --uts sh -c 'hostname second && exec bin/nvpair serve'
