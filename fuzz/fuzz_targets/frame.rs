//! Whatever the bytes, a head is within bounds or refused, and a HELLO is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mile_net::frame::{CHUNK, HEAD, Head};
use mile_net::handshake::Hello;

fuzz_target!(|bytes: &[u8]| {
    if let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        if let Ok(head32) = Head::decode::<f32>(head) {
            assert!(head32.length <= CHUNK);
            assert_eq!(head32.encode(), *head);
        }
        if let Ok(head64) = Head::decode::<f64>(head) {
            assert_eq!(Head::decode::<f32>(head), Ok(head64), "f64 is stricter");
        }
        let _ = serde_json::from_slice::<Hello>(rest);
    }
});
