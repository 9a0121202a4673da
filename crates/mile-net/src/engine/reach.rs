//! Why a neighbour's addresses cannot be reached, as far as this machine can find out.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

/// How long an attempt to connect may take.
pub(super) const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a name may take to be resolved, and a host to say that it refuses a packet.
const LOOKUP: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_millis(500);

/// The addresses behind `host:port` names, and what is wrong with those that have none.
pub(super) async fn resolve(names: &[String]) -> (Vec<SocketAddr>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        match timeout(LOOKUP, lookup_host(name)).await {
            Ok(Ok(addresses)) => found.extend(addresses),
            Ok(Err(error)) => problems.push(format!("unknown host in {name} ({error})")),
            Err(_) => problems.push(format!("no answer from the name service for {name}")),
        }
    }
    (found, problems)
}

/// The message about a neighbour without addresses, with what is wrong with the names it has.
pub(super) fn no_address(problems: &[String]) -> String {
    if problems.is_empty() {
        return "no address is known for it, so it must connect to this agent".into();
    }
    problems.join("; ")
}

/// The message about an address at which the system refuses the kind of packets that this transport uses.
pub(super) fn nobody(address: SocketAddr, packets: &str, transport: &str) -> String {
    format!(
        "nothing listens on {address} for {packets}: is the agent running there, and is its agent.transport \"{transport}\" too?"
    )
}

/// The message about an address that does not answer.
pub(super) fn silence(addresses: &str, packets: &str) -> String {
    format!(
        "no answer from {addresses}: is the agent running there, and does a firewall let {packets} through?"
    )
}

/// The message about an address at which another program answers.
pub(super) fn another_key(addresses: &str) -> String {
    format!(
        "an agent with another key answers at {addresses}: is the neighbour's key the one that mile keygen --public prints there?"
    )
}

/// The message about an address to which the system has no route.
pub(super) fn no_route(address: SocketAddr, error: &std::io::Error) -> String {
    format!("no route to {address} ({error})")
}

/// Sends each address a meaningless packet, and listens for a refusal by the system or the host. Returns why none of the
/// addresses can be reached; does not return if one of them may be.
pub(super) async fn refusals(addresses: &[SocketAddr]) -> String {
    let mut reasons = Vec::with_capacity(addresses.len());
    for address in addresses {
        match refusal(*address).await {
            Some(reason) => reasons.push(reason),
            None => std::future::pending::<()>().await,
        }
    }
    reasons.join("; ")
}

async fn refusal(address: SocketAddr) -> Option<String> {
    let probe = async {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        socket.send(&[0]).await?;
        match timeout(ANSWER, socket.recv(&mut [0; 1])).await {
            Ok(answer) => answer,
            Err(_) => Ok(0),
        }
    };
    let error = probe.await.err()?;
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => nobody(address, "UDP", "quic"),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            no_route(address, &error)
        }
        ErrorKind::PermissionDenied => format!("this machine does not permit packets to {address} ({error})"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_host_a_refused_port_and_a_missing_route_are_told_apart() {
        let (found, problems) = resolve(&["no-such-host.invalid:7100".into(), "127.0.0.1:7100".into()]).await;
        assert_eq!(found, ["127.0.0.1:7100".parse().unwrap()]);
        assert!(problems[0].contains("no-such-host.invalid:7100"), "{problems:?}");
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(refusal(address).await, None, "somebody may answer");
        drop(socket);
        let said = refusals(&[address]).await;
        assert!(said.contains(&address.to_string()) && said.contains("UDP"), "{said}");
        assert!(said.contains("agent.transport \"quic\""), "{said}");
        let multicast = "255.255.255.255:9".parse().unwrap();
        assert!(refusal(multicast).await.is_some(), "broadcasts need a permission");
    }
}
