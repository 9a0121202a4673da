//! What a transport is started with.

use std::net::SocketAddr;
use std::sync::Arc;

use iroh::{RelayUrl, SecretKey};

use super::admission::{Admission, Listed};

/// The key and the address of this agent, and whom it admits.
pub(super) struct Start {
    pub(super) key: SecretKey,
    pub(super) listen: SocketAddr,
    pub(super) relay: Option<RelayUrl>,
    pub(super) listed: Listed,
    pub(super) admission: Arc<Admission>,
}
