//! What connections are for.

use super::ALPN;

/// What a connection is for; both ends agree on it in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A link.
    Link,
    /// Notices of all agents.
    Notices,
}

impl Purpose {
    const ALL: [Self; 2] = [Self::Link, Self::Notices];

    /// Its name in the handshake.
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Link => ALPN,
            Self::Notices => b"mile-notices/1",
        }
    }

    /// The names of all.
    pub(super) fn alpns() -> Vec<Vec<u8>> {
        Self::ALL.map(|purpose| purpose.alpn().to_vec()).into()
    }

    /// What the two ends have agreed on.
    pub(super) fn agreed(alpn: Option<&[u8]>) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| alpn == Some(purpose.alpn()))
    }
}
