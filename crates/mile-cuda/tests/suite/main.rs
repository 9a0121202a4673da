//! The engine on an emulated device (GPU kernels run by the CPU), and on a GPU if there is one.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod common;
mod direct; // ranks that accept messages in the memory of devices
mod lost; // a device that fails in the middle of a run
mod methods; // every method against the simulator
mod networks; // gradients and scores of networks against those of the CPU
mod objectives; // gradients of quadratics and tables against those of the CPU
mod ranks; // agents over ranks against all of them on one device
mod together; // jobs that compute together against each alone
