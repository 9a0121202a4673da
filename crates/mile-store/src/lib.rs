//! States of runs on disk, as the lab and agents on a network keep them.
//!
//! - [`facts`]: what the bits of a state depend on;
//! - [`mod@file`]: files that are the old one or the complete new one, even after a power failure;
//! - [`lock`]: folders that one process works in at a time;
//! - [`packed`]: bytes as numbers of a state;
//! - [`parts`]: states that several processes write together;
//! - [`state`]: named vectors and a header in one safetensors file, with checksums;
//! - [`stored`]: vectors of a state that stay on disk and are read in parts.

mod error;
pub mod facts;
pub mod file;
pub mod lock;
pub mod packed;
pub mod parts;
pub mod state;
pub mod stored;

pub use error::StateError;
pub use facts::{Fact, Facts};
pub use file::{write_file, write_with};
pub use lock::{FolderLock, LockError};
pub use state::{Array, StateFile};
pub use stored::StoredVector;
