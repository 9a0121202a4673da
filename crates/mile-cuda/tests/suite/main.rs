//! The engine on an emulated device, the kernels of a GPU run by the CPU, and on a GPU if there is one.
#![allow(unreachable_pub, reason = "a test binary has no users")]

mod common;
mod direct; // ranks that take messages from the memory of devices
mod lost; // a device that fails in mid-run
mod methods; // every method against the simulator
mod networks; // gradients and scores of networks against those of the CPU
mod objectives; // gradients of quadratics and tables against those of the CPU
mod ranks; // agents over ranks against all of them on one device
mod together; // jobs that compute together against each alone
