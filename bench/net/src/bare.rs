//! Two iroh endpoints, one stream, no protocol: both ends send and receive a vector at the same time.

use bytes::Bytes;
use iroh::endpoint::{RecvStream, SendStream, presets};
use iroh::{Endpoint, EndpointAddr};
use mile_net::engine::{ALPN, quic_settings};

use crate::{Part, Times, cpu, peak};

struct Vector(Vec<f32>);

impl AsRef<[u8]> for Vector {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

pub(crate) fn run(part: &Part) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(talk(part));
}

async fn talk(part: &Part) {
    let endpoint = Endpoint::builder(presets::Minimal)
        .secret_key(Part::key(part.me))
        .alpns(vec![ALPN.to_vec()])
        .transport_config(quic_settings())
        .clear_ip_transports()
        .bind_addr(part.address(part.me))
        .expect("an address")
        .bind()
        .await
        .expect("a free address");
    let mut received = vec![0f32; part.dim];
    let own = Bytes::from_owner(Vector(vec![1.0; part.dim]));
    let (connection, (mut send, mut receive)) = if part.me == 0 {
        let connection = endpoint.accept().await.expect("open").await.expect("a connection");
        let streams = connection.accept_bi().await.expect("a stream");
        (connection, streams)
    } else {
        let address = EndpointAddr::new(Part::key(0).public()).with_ip_addr(part.address(0));
        let connection = endpoint.connect(address, ALPN).await.expect("a connection");
        let streams = connection.open_bi().await.expect("a stream");
        (connection, streams)
    };
    let (mut times, mut before) = (Times::default(), 0.0);
    for k in 0..part.reps + 1 {
        let begun = Times::now();
        exchange(&mut send, &mut receive, own.clone(), &mut received).await;
        times.add(begun);
        if k == 0 {
            before = cpu();
        }
    }
    let used = cpu() - before;
    assert!(received.iter().all(|value| *value == 1.0));
    let _ = send.finish();
    if part.me == 0 {
        connection.closed().await;
    } else {
        let _ = receive.read_to_end(1).await;
        connection.close(0u32.into(), b"done");
        endpoint.close().await;
    }
    times.print();
    println!("0 0 0 {} {used}", peak());
}

async fn exchange(send: &mut SendStream, receive: &mut RecvStream, own: Bytes, received: &mut [f32]) {
    let sending = async { send.write_chunk(own).await.expect("sent") };
    let receiving = async { receive.read_exact(bytemuck::cast_slice_mut(received)).await.expect("received") };
    tokio::join!(sending, receiving);
}
