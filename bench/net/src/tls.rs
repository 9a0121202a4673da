//! TLS 1.3 over TCP, one connection, no protocol: both ends send and receive a vector at the same time.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{Part, Times, cpu, peak};

const NAME: &str = "localhost";

pub(crate) fn run(part: &Part) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(talk(part));
}

async fn talk(part: &Part) {
    if part.me == 0 {
        let listener = TcpListener::bind(part.address(0)).await.expect("a free address");
        let (mut tcp, _) = listener.accept().await.expect("a connection");
        tcp.set_nodelay(true).expect("an option");
        let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let certificate = own.cert.der().clone();
        // The other end learns it before the handshake.
        tcp.write_u32(certificate.len() as u32).await.expect("sent");
        tcp.write_all(&certificate).await.expect("sent");
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .expect("a certificate and its key");
        let stream = TlsAcceptor::from(Arc::new(config)).accept(tcp).await.expect("a handshake");
        exchanges(part, stream).await;
    } else {
        let mut tcp = loop {
            if let Ok(tcp) = TcpStream::connect(part.address(0)).await {
                break tcp;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        tcp.set_nodelay(true).expect("an option");
        let mut certificate = vec![0; tcp.read_u32().await.expect("received") as usize];
        tcp.read_exact(&mut certificate).await.expect("received");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate)).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(NAME).expect("a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("a handshake");
        exchanges(part, stream).await;
    }
}

async fn exchanges(part: &Part, stream: impl AsyncRead + AsyncWrite) {
    let (mut receive, mut send) = tokio::io::split(stream);
    let own = vec![1f32; part.dim];
    let mut received = vec![0f32; part.dim];
    let (mut times, mut before) = (Times::default(), 0.0);
    for k in 0..part.reps + 1 {
        let begun = Times::now();
        let sending = async {
            send.write_all(bytemuck::cast_slice(&own)).await.expect("sent");
            send.flush().await.expect("sent");
        };
        let receiving =
            async { receive.read_exact(bytemuck::cast_slice_mut(&mut received)).await.expect("received") };
        tokio::join!(sending, receiving);
        times.add(begun);
        if k == 0 {
            before = cpu();
        }
    }
    let used = cpu() - before;
    assert!(received.iter().all(|value| *value == 1.0));
    times.print();
    println!("0 0 0 {} {used}", peak());
}
