#!/usr/bin/env bash
# The four machines of docs/src/network.md, each a network namespace: folders are emitted, agents run, one is killed and started again, the cable of another
# is pulled for a while, their folders are gathered, and the result has the bits of one process. Needs root and ip; MILE names the program.
# With TRANSPORT=tcp they are connected by TCP. With DIM and ROUNDS it is another experiment.
# EXPERIMENT names the experiment file of an example with four agents instead; one with objectives in Python needs the command of the package.
# MILE_STATUS names a program that asks agents for their status faster than it. With NETEM="delay 100ms loss 5%" every line is like that. Prints rounds per second.
set -euo pipefail
mile=$(realpath --no-symlinks "${MILE:-target/debug/mile}")
asking=$(realpath --no-symlinks "${MILE_STATUS:-$mile}")
transport=${TRANSPORT:-quic} netem=${NETEM:-} dim=${DIM:-50} rounds=${ROUNDS:-400}
experiment=${EXPERIMENT:+$(realpath "$EXPERIMENT")}
work=$(mktemp -d)
names=(north east south west)
bridge=mile-br$$
cleanup() {
    for pid in "${agents[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2> /dev/null || true; done
    for name in "${names[@]}"; do ip netns delete "mile-$name-$$" 2> /dev/null || true; done
    ip link delete "$bridge" 2> /dev/null || true
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
agents=()
trap cleanup EXIT
ip link add "$bridge" type bridge
ip link set "$bridge" up
hosts=()
for k in 0 1 2 3; do
    space=mile-${names[k]}-$$ outer=mo$k-$$
    ip netns add "$space"
    ip link add "$outer" type veth peer name eth0 netns "$space"
    ip link set "$outer" master "$bridge" up
    ip -n "$space" link set lo up
    ip -n "$space" link set eth0 up
    ip -n "$space" address add "10.77.0.$((k + 1))/24" dev eth0
    [ -z "$netem" ] || ip netns exec "$space" tc qdisc add dev eth0 root netem $netem limit 100000
    hosts+=(--host "$k=10.77.0.$((k + 1)):7100")
done
cd "$work"
if [ -n "$experiment" ]; then
    cp -r "$(dirname "$experiment")/." .
    rounds=$(grep -m 1 -oP '^rounds = \K[0-9]+' "$experiment")
    what=$(grep -m 1 -oP '^name = "\K[^"]+' "$experiment")
else
    what="n = $dim"
    cat > experiment.toml << END
name = "machines"
rounds = $rounds
eval_every = 20
precision = "f32"
[network]
agents = 4
topology = "ring"
[problem]
kind = "quadratic"
dim = $dim
[[algorithm]]
name = "mile"
step_size = 0.1
[agent]
snapshots = true
END
fi
quiet() { "$@" > said 2>&1 || { cat said; exit 1; }; }
quiet "$mile" run experiment.toml --out one
quiet "$mile" swarm experiment.toml --emit deploy --set "agent.transport=$transport" "${hosts[@]}"
start() { ip netns exec "mile-${names[$1]}-$$" "$mile" agent "deploy/agents/$1/agent.toml" >> "log-$1" 2>&1 & agents[$1]=$!; }
for k in 0 1 2 3; do start $k; done
begun=$(date +%s.%N)
if [ -z "$netem" ]; then
    # Its own round comes after those of the others, of which it has notices.
    round() { "$asking" status "deploy/agents/$1" --format json 2> /dev/null | grep -o '"round": *[0-9]*' | tail -n 1 | grep -o '[0-9]*$' || echo 0; }
    # Waits until an agent has done this many rounds.
    reach() {
        until [ "$(round "$1")" -ge "$2" ]; do
            kill -0 "${agents[$1]}" || { echo "agent $1 ended before round $2:"; tail -20 "log-$1"; exit 1; }
            sleep 0.02
        done
    }
    # In the middle of the run.
    reach 2 $((rounds / 6))
    kill -9 "${agents[2]}"
    code=0
    wait "${agents[2]}" 2> /dev/null || code=$?
    [ $code = 137 ] || { echo "agent 2 was killed too late: it had ended with $code"; exit 1; }
    "$mile" status deploy/agents/0 > status || true
    start 2
    # A cable is pulled, and plugged in again when its neighbours have noticed.
    reach 0 $((rounds / 2))
    ip link set "mo3-$$" down
    pulled=$(date +%s.%N)
    # Sixty seconds are a guard against waiting for ever: it takes about three.
    until "$asking" status deploy/agents/0 --format json 2> /dev/null | grep -q '"linked": *false, *"received"'; do
        [ "$(echo "$(date +%s.%N) $pulled" | awk '{ print ($1 - $2 < 60) }')" = 1 ] || { echo "nobody has noticed that a cable was pulled"; exit 1; }
        sleep 0.05
    done
    echo "a cable was pulled: noticed after $(echo "$(date +%s.%N) $pulled" | awk '{ printf "%.1f", $1 - $2 }') s"
    ip link set "mo3-$$" up
fi
for k in 0 1 2 3; do
    wait "${agents[k]}" || { echo "agent $k failed:"; tail -20 "log-$k"; exit 1; }
    agents[k]=
done
ended=$(date +%s.%N)
echo "$rounds rounds of $what in $(echo "$ended $begun $rounds" | awk '{ printf "%.1f s, %.2f rounds per second", $1 - $2, $3 / ($1 - $2) }')"
"$mile" gather deploy --out all > gathered 2>&1 || { cat gathered; exit 1; }
for file in one/final/*-seed0.safetensors; do
    cmp "$file" "all/final/$(basename "$file")"
done
echo "four machines by $transport: same bits"
