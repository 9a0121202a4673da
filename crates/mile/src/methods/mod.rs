//! The built-in methods, one file each, and the catalogue that builds them by name.

mod d2;
mod dec_fedtrack;
mod diging;
mod dsgd;
mod ed;
mod extra;
mod gradient_tracking;
mod gta;
mod k_gt;
mod led;
mod local_dsgd;
mod mg_skip;
mod mile;
mod nids;
mod periodical_gt;
mod primal_dual;
mod prox_nids;
mod proxskip;
mod push_pull;
mod scaffold;
mod tracking;

pub mod catalogue;

pub use d2::D2;
pub use dec_fedtrack::DecFedTrack;
pub use diging::Diging;
pub use dsgd::{Dsgd, Variant};
pub use ed::Ed;
pub use extra::Extra;
pub use gradient_tracking::GradientTracking;
pub use gta::Gta;
pub use k_gt::KGt;
pub use led::Led;
pub use local_dsgd::LocalDsgd;
pub use mg_skip::MgSkip;
pub use mile::Mile;
pub use nids::Nids;
pub use periodical_gt::PeriodicalGt;
pub use prox_nids::ProxNids;
pub use proxskip::ProxSkip;
pub use push_pull::PushPull;
pub use scaffold::Scaffold;
